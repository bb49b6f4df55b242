// Region: the nodes that one kernel computes, and the space it runs over.
#pragma once

#include "ir/graph.h"
#include "ir/loops.h"

#include <string>
#include <vector>

namespace kiln::plan {

using ir::Graph;
using ir::NodeId;

/// Nodes of a region are full (one value per point of the domain) or row nodes (one per kept point: what
/// reductions produce). A map region has no reduced axes and no row nodes.
struct Region {
  enum class Kind : std::uint8_t { Fused, Library, Loop } kind = Kind::Fused;
  std::vector<NodeId> nodes;    // compute nodes, ascending (topological)
  std::vector<NodeId> outputs;  // nodes stored to memory, ascending
  std::vector<NodeId> rows;     // nodes of `nodes` that are row nodes, ascending
};

/// Why two regions stayed apart.
struct Refusal {
  NodeId producer, consumer;
  std::string reason;
};

struct Regions {
  std::vector<Region> regions;       // in an order in which they can run
  std::vector<bool> stored;          // per node: in memory once its region has run (leaves: always)
  std::vector<Refusal> refusals;
  ir::Loops loops;                   // of the graph; those of a fused region run inside its kernel, element by element
};

}  // namespace kiln::plan
