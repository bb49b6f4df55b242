// Terminates: one walk in topological order; a part of a sort becomes a reduction.
#include "transform/take_extremes.h"

#include "ir/builder.h"
#include "transform/rebuild.h"

namespace kiln::transform {

using ir::GraphNode;
using ir::NodeId;
using ir::Op;

Renumbering take_extremes(ir::Graph& graph) {
  ir::Builder add(graph);
  return rebuild(graph, [&](NodeId, GraphNode n) {
    if (n.op != Op::part || graph[n.in[0]].op != Op::sort_with_positions) return add.push(n);
    const GraphNode bundle = graph[n.in[0]];
    const auto how = ir::attributes<ir::Sort>(bundle);
    const NodeId x = bundle.in[0];
    if (!how.descending || n.dims[how.axis] != 1 || graph[x].dims[how.axis] <= 1 || is_bool(graph[x].dtype))
      return add.push(n);
    const Op op = ir::attributes<ir::Part>(n).index == 0 ? Op::reduce_max : Op::reduce_argmax;
    add.redefine(n, op, {x}, ir::Reduce{std::uint64_t{1} << how.axis});
    return add.push(n);
  });
}

}  // namespace kiln::transform
