// Region: the nodes that one kernel computes, and the space it runs over.
#pragma once

#include "ir/graph.h"
#include "ir/loops.h"
#include "support/why.h"

#include <kiln/fusion_report.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace kiln::plan {

using ir::Graph;
using ir::NodeId;

/// Nodes of a region are full (one value per point of the domain) or row nodes (one per kept point: what
/// reductions produce). A map region has no reduced axes and no row nodes.
///
/// Where reductions go along different axes, nodes stand at several places: 0 is full. In a nest each place
/// is what a reduction leaves of the one before; otherwise every reduction reads full values. `axes` then has
/// the domain.
struct Region {
  /// Contraction: a matrix product and the maps around it; also those that make its operand on the way.
  enum class Kind : std::uint8_t {
    Fused,
    Library,
    Loop,
    Contraction,
    Attention,
    PairSums
  } kind = Kind::Fused;
  std::vector<NodeId> nodes;     // compute nodes, ascending (topological)
  std::vector<NodeId> outputs;   // nodes stored to memory, ascending
  std::vector<NodeId> rows;      // nodes of `nodes` that are row nodes, ascending
  NodeId product = ir::kNoNode;  // Contraction: the product
  NodeId second = ir::kNoNode;   // Contraction: another of the same rows, side by side; the maps read both
  /// Contraction: distance of columns that maps read together; Fused: of points of halves that maps join. 0:
  /// none.
  std::int64_t partner = 0;
  std::vector<Region> parts;  // Contraction: several products that share a launch; all of this is theirs
  int tiled = -1;             // Attention: index into Regions::attentions; PairSums: into pair_sums
  struct Loop {
    std::int64_t extent;
    std::uint32_t places;  // bit p: values at place p have it
  };
  std::vector<Loop> axes;   // outermost first; empty: values have one set of reduced axes, or none
  std::vector<int> places;  // of `nodes`, where there are axes
  bool nest = false;
  /// Of its schedule, one after the other. Nothing: nobody asks which there are (adaptive mode is off).
  std::optional<std::vector<FusionVariant>> variants;
};

/// Why two regions stayed apart.
struct Refusal {
  NodeId producer, consumer;
  Why why;
};

/// Where a stored node lies that goes into memory which is there already: an argument's, as a whole
/// (reuse.h), or at an offset and strides of its own, and at starts that nodes hold (see ir::Op slice_at).
struct Placement {
  struct Position {
    NodeId start;
    std::int64_t last, factor, stride;
    std::int64_t from_back;  // what is added to a negative start, or 0
  };
  std::uint32_t arg = 0;
  bool whole = false;                 // all of the argument's memory, in the order of the node: nothing below
  std::int64_t offset = 0;            // elements
  std::vector<std::int64_t> strides;  // elements
  std::vector<Position> positions;
};

/// Whether a node's value is the memory of an argument, once what it is made of is written there: see
/// donate.h.
inline bool is_written_in_place(const ir::GraphNode& n) {
  return n.arg >= 0 && (n.op == ir::Op::pad || n.op == ir::Op::update_at);
}

struct Attention;   // plan/attention.h
struct PairSums;    // plan/pair_sums.h
struct WindowView;  // plan/window_view.h

struct Regions {
  std::vector<Region> regions;  // in an order in which they can run
  std::vector<bool> stored;     // per node: in memory once its region has run (leaves: always)
  std::vector<Refusal> refusals;
  std::unordered_map<NodeId, Placement> placements;  // of stored nodes
  std::unordered_map<NodeId, Region>
      made;  // by its one output: what a product does on the way (made_operands.h)
  std::unordered_map<NodeId, std::shared_ptr<const WindowView>>
      windows;  // by the product whose main loop reads them where they lie
  std::vector<std::shared_ptr<const Attention>> attentions;
  std::vector<std::shared_ptr<const PairSums>> pair_sums;
  ir::Loops loops;  // of the graph; those of a fused region run inside its kernel, element by element
};

}  // namespace kiln::plan
