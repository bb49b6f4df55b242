// Terminates: a look at readers is of at most kMostSteps nodes.
#include "transform/only_reduced.h"

#include <algorithm>

namespace kiln::transform {
namespace {

constexpr std::size_t kMostSteps = 8;  // operations that are made of a result

}  // namespace

OnlyReduced::OnlyReduced(const Graph& graph) : uses_(graph), root_(graph.size()) {
  nodes_.reserve(graph.size());
  for (NodeId id = 0; id < graph.size(); ++id) {
    const GraphNode& n = graph[id];
    nodes_.push_back({n.op, n.numel, n.in.empty() ? kNoNode : n.in[0], n.held});
  }
  for (const NodeId r : graph.roots) root_[r] = true;
}

bool OnlyReduced::contains(NodeId id) const {
  std::size_t steps = 0;
  return contains(id, steps);
}

bool OnlyReduced::contains(NodeId id, std::size_t& steps) const {
  if (root_[id] || nodes_[id].held || uses_[id].empty() || ++steps > kMostSteps) return false;
  return std::ranges::all_of(uses_[id], [&](const ir::Use& u) {
    const Seen& n = nodes_[u.reader];
    if (ir::is_reduce(n.op) || (n.op == Op::gather && n.first == id)) return n.numel < nodes_[id].numel;
    return (ir::is_elementwise(n.op) || ir::is_view(n.op)) && n.numel == nodes_[id].numel &&
           contains(u.reader, steps);
  });
}

}  // namespace kiln::transform
