// Terminates: one walk; a node loses operands or becomes another op of nodes before it.
#include "transform/settle_parts.h"

#include "ir/builder.h"
#include "ir/loops.h"
#include "transform/nouns.h"

#include <span>
#include <vector>

namespace kiln::transform {
namespace {

/// The values of a sort whose positions are in memory: x there.
bool taken_from_positions(ir::Graph& g, GraphNode& n) {
  const GraphNode& bundle = g[n.in[0]];
  if (bundle.op != Op::sort_with_positions || g[n.in[1]].op != Op::leaf) return false;
  const std::size_t axis = ir::attributes<ir::Sort>(bundle).axis;
  ir::Builder(g).redefine(n, Op::gather, {bundle.in[0], n.in[1]}, ir::Gather{axis});
  return true;
}

}  // namespace

Renumbering settle_parts(ir::Graph& graph) {
  std::vector<NodeId> beside;
  for (GraphNode& n : graph.nodes) {
    if (n.op != Op::part || n.in.size() == 1 || taken_from_positions(graph, n)) continue;
    for (const NodeId other : std::span(n.in.begin(), n.in.end()).subspan(1))
      if (graph[other].op == Op::part && graph[other].held) beside.push_back(other);
    n.in = {n.in[0]};
  }
  if (!beside.empty()) {
    const ir::Loops loops = ir::find_loops(graph);  // inside of which nothing can be stored
    for (const NodeId id : beside)
      if (loops.owner_of(id) == ir::kNoNode) graph.roots.push_back(id);
  }
  return Replacement(graph).finish();
}

}  // namespace kiln::transform
