// Rebuilding: a pass that makes every node again, in topological order, some of them as several nodes.
#pragma once

#include "transform/replacement.h"

#include <utility>

namespace kiln::transform {

/// `place(id, n)` adds what stands for the node that had the number `id` and returns its number; n reads what
/// stands for its operands.
template <class Place>
Renumbering rebuild(ir::Graph& graph, Place place) {
  const std::vector<ir::GraphNode> old = std::move(graph.nodes);
  graph.nodes.clear();
  graph.nodes.reserve(old.size() + old.size() / 8 + 16);
  Renumbering now(old.size());
  for (ir::NodeId id = 0; id < old.size(); ++id) {
    ir::GraphNode n = old[id];
    for (ir::NodeId& in : n.in) in = now[in];
    now[id] = place(id, n);
  }
  for (ir::NodeId& root : graph.roots) root = now[root];
  return now;
}

}  // namespace kiln::transform
