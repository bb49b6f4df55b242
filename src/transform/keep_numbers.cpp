// Terminates: one walk in topological order; a scatter gets at most two more nodes.
#include "transform/keep_numbers.h"

#include "ir/builder.h"
#include "transform/nouns.h"
#include "transform/rebuild.h"

namespace kiln::transform {

Renumbering keep_numbers(ir::Graph& graph) {
  constexpr std::size_t kValues = 2;
  ir::Builder add(graph);
  return rebuild(graph, [&](NodeId, GraphNode n) {
    if (n.op != Op::scatter) return add.push(n);
    GraphNode values = graph[n.in[kValues]];
    if (values.op != Op::broadcast || values.numel == 1) return add.push(n);
    const ir::OpKind kind = ir::info(graph[values.in[0]].op).kind;
    if (graph[values.in[0]].numel != 1 || kind == ir::OpKind::Leaf) return add.push(n);
    add.loc = n.loc;
    values.held = false;
    values.in[0] = add.add(Op::arrange, {values.in[0]});
    n.in[kValues] = add.push(values);
    return add.push(n);
  });
}

}  // namespace kiln::transform
