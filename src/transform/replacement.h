// Replacement: which nodes stand for others while a pass walks a graph in topological order. Replaced nodes
// stay in the list, unreachable, until dce removes them.
#pragma once

#include "ir/graph.h"

#include <numeric>
#include <utility>
#include <vector>

namespace kiln::transform {

/// For each node id before a pass: the id that has its value afterwards, kNoNode when nothing needs it.
using Renumbering = std::vector<ir::NodeId>;

class Replacement {
 public:
  explicit Replacement(ir::Graph& graph) : g_(graph), now_(graph.size()) {
    std::iota(now_.begin(), now_.end(), 0u);
  }

  /// Makes a node read what replaced its operands. To be called once a node, before looking at it.
  void forward_inputs(ir::GraphNode& n) const {
    for (ir::NodeId& in : n.in) in = now_[in];
  }
  /// Uses of `id`, all of which come later, will read `by` instead.
  void replace(ir::NodeId id, ir::NodeId by) {
    now_[id] = by;
    g_[by].held |= g_[id].held;
  }
  /// Redirects the roots. The last call.
  Renumbering finish() {
    for (ir::NodeId& root : g_.roots) root = now_[root];
    return std::move(now_);
  }

 private:
  ir::Graph& g_;
  Renumbering now_;
};

}  // namespace kiln::transform
