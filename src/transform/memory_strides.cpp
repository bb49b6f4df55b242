// Terminates: each step goes to an operand, which comes before its reader.
#include "transform/memory_strides.h"

#include "ir/layout.h"
#include "ir/view_map.h"
#include "transform/nouns.h"

#include <algorithm>
#include <optional>

namespace kiln::transform {
namespace {

using Strides = std::vector<std::int64_t>;

constexpr int kMostSteps = 64;

Strides row_major(const GraphNode& n) { return ir::row_major_strides(n.dims); }

/// Of a reshape that only adds or drops axes of one element, or shows adjacent memory.
Strides through_reshape(const GraphNode& to, const GraphNode& from, const Strides& strides) {
  Strides kept, out(to.dims.size());
  std::vector<std::int64_t> before, after;
  for (std::size_t a = 0; a < from.dims.size(); ++a)
    if (from.dims[a] != 1) before.push_back(from.dims[a]), kept.push_back(strides[a]);
  for (const std::int64_t d : to.dims)
    if (d != 1) after.push_back(d);
  if (before != after) return row_major(to);
  for (std::size_t a = 0, k = 0; a < out.size(); ++a) out[a] = to.dims[a] == 1 ? 0 : kept[k++];
  return out;
}

Strides strides_of(const ir::Graph& g, NodeId id, int steps) {
  const GraphNode& n = g[id];
  if (n.op == Op::leaf) {
    const ir::Dims strides = g.args[static_cast<std::size_t>(n.arg)].strides;
    return {strides.begin(), strides.end()};
  }
  if (steps == 0 || n.in.empty()) return row_major(n);
  const GraphNode& in = g[n.in[0]];
  const auto below = [&](NodeId at) { return strides_of(g, at, steps - 1); };
  if (ir::has(n.op, ir::AFFINE)) {
    const ir::ViewMap map = ir::view_map(n, in.dims);
    const Strides from = below(n.in[0]);
    Strides out(n.dims.size());
    for (const ir::ViewMap::Term& t : map.terms) out[t.axis] += t.step * from[t.operand_axis];
    return out;
  }
  if (n.op == Op::reshape) return through_reshape(n, in, below(n.in[0]));
  if (n.op == Op::pad) return below(n.in[0]);
  if (ir::is_elementwise(n.op))
    for (const NodeId operand : n.in)
      if (g[operand].numel == n.numel && g[operand].dims.size() == n.dims.size()) return below(operand);
  return row_major(n);
}

}  // namespace

Strides memory_strides(const ir::Graph& graph, NodeId id) { return strides_of(graph, id, kMostSteps); }

}  // namespace kiln::transform
