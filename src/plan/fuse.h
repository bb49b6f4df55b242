// fuse: which nodes share a kernel.
#pragma once

#include "plan/region.h"
#include "schedule/target.h"

#include <span>
#include <vector>

namespace kiln::plan {

/// How much is to share a kernel: what may, or nothing, for graphs that the former fails for. Then every
/// compute node is a region of its own, with the views and cheap values that it reads, and every loop runs
/// over whole tensors.
enum class Fusion : std::uint8_t { Full, None };

/// A computing node, or a view that is to have memory of its own: it is stored, and its readers are other
/// regions.
struct Apart {
  NodeId node;
  Why why;
};

/// What was decided before: by patterns of the program, and by measurements (variants.h).
struct Orders {
  std::vector<Apart> apart;
  std::vector<NodeId> alone;     // their regions become no region with others that read the same memory
  std::vector<NodeId> together;  // their regions take in what they read although the model would not
  bool empty() const { return apart.empty() && alone.empty() && together.empty(); }
};

/// Pre: verified graph, ids topological. Post: every root is stored or an alias (affine view) of something
/// stored; every region lowers; regions are in an order in which they can run; every compute node is in one
/// region, or is recomputed inside its consumers (and then in none).
Regions fuse(const Graph& graph, const schedule::Target& target, Fusion fusion = Fusion::Full,
             const Orders& orders = {});

/// The nodes of attentions, and of their gradients, that main loops make tile by tile.
std::vector<bool> tiled_nodes(const Graph& graph, const schedule::Target& target);

/// Where an affine view's elements lie in the memory of the leaf or stored node below it.
struct Alias {
  /// A start that a scalar slot holds: moved into [0, last], then so many strides from the offset.
  struct Position {
    std::int32_t slot;
    std::int64_t last, stride;
  };
  NodeId base = ir::kNoNode;          // kNoNode: not affine, must be computed
  std::int64_t offset = 0;            // elements
  std::vector<Position> positions;    // and what a run adds to it
  std::vector<std::int64_t> strides;  // elements, one per axis
};
Alias resolve_alias(const Graph& graph, NodeId view);

}  // namespace kiln::plan
