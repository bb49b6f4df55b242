// Terminates: one walk in topological order; a part of a sort becomes a reduction.
#include "transform/take_extremes.h"

#include "ir/builder.h"
#include "transform/rebuild.h"

#include <unordered_map>

namespace kiln::transform {

using ir::GraphNode;
using ir::NodeId;
using ir::Op;

Renumbering take_extremes(ir::Graph& graph) {
  ir::Builder add(graph);
  std::unordered_map<NodeId, NodeId> positions;  // of each order's first element
  return rebuild(graph, [&](NodeId, GraphNode n) {
    if (n.op != Op::part || graph[n.in[0]].op != Op::sort_with_positions) return add.push(n);
    const GraphNode bundle = graph[n.in[0]];
    const auto how = ir::attributes<ir::Sort>(bundle);
    const NodeId x = bundle.in[0];
    if (!how.descending || n.dims[how.axis] != 1 || graph[x].dims[how.axis] <= 1 || is_bool(graph[x].dtype))
      return add.push(n);
    const ir::Reduce along{std::uint64_t{1} << how.axis};
    if (ir::attributes<ir::Part>(n).index == 0 && !is_float(graph[x].dtype)) {
      add.redefine(n, Op::reduce_max, {x}, along);
      return add.push(n);
    }
    const auto [at, first] = positions.try_emplace(n.in[0]);
    add.loc = n.loc;
    if (first) at->second = add.add(Op::reduce_argmax, {x}, along);
    if (ir::attributes<ir::Part>(n).index == 1) {
      graph[at->second].held |= n.held;
      return at->second;
    }
    add.redefine(n, Op::gather, {x, at->second}, ir::Gather{how.axis});
    return add.push(n);
  });
}

}  // namespace kiln::transform
