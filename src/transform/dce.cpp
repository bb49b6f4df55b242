// Terminates: two walks over the nodes, one down, one up.
#include "transform/dce.h"

#include "transform/nouns.h"

namespace kiln::transform {

Renumbering dce(ir::Graph& graph) {
  Renumbering now(graph.size(), kNoNode);
  constexpr NodeId kNeeded = 0;  // any value but kNoNode: the second walk numbers
  for (NodeId root : graph.roots) now[root] = kNeeded;
  for (NodeId id = graph.size(); id-- > 0;) {
    if (now[id] == kNoNode) continue;
    const GraphNode& n = graph[id];
    for (const NodeId in : n.in) now[in] = kNeeded;
  }
  NodeId next = 0;
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (now[id] == kNoNode) continue;
    now[id] = next;
    GraphNode& n = graph[next];
    if (next != id) n = graph[id];
    for (NodeId& in : n.in) in = now[in];
    ++next;
  }
  graph.nodes.resize(next);
  for (NodeId& root : graph.roots) root = now[root];
  return now;
}

}  // namespace kiln::transform
