// Values come from the reference evaluation, so that folding is one more user of the same definition.
// Terminates: one walk; a node becomes a constant or stays.
#include "transform/fold.h"

#include "ir/builder.h"
#include "oracle/interpret.h"
#include "transform/nouns.h"

#include <cstring>

namespace kiln::transform {
namespace {

/// One element of `n`, whose operands are constants.
std::uint64_t value_of(const Graph& g, const GraphNode& n) {
  Graph one;
  const auto add = [&](const GraphNode& like) -> GraphNode& {
    GraphNode& copy = one.nodes.emplace_back(like);
    copy.dims = {};
    copy.numel = 1;
    return copy;
  };
  std::vector<NodeId> in;
  for (const NodeId operand : n.in) {
    in.push_back(one.size());
    add(g[operand]);
  }
  one.roots = {one.size()};
  add(n).in = ir::Operands(in);
  std::uint64_t bits = 0;
  std::memcpy(&bits, ir::interpret(one, {}, {})[0].data(), static_cast<std::size_t>(size_of(n.dtype)));
  return bits;
}

/// Whether the reference evaluation has the bits that kernels have: not of functions, which are approximated.
/// (Of halves and float32 it rounds twice, which is once for exact ops.)
bool rounds_alike(const Graph& g, const GraphNode& n) {
  return ir::has(n.op, ir::EXACT) || (!is_float(n.dtype) && !is_float(g[n.in[0]].dtype));
}

}  // namespace

Renumbering fold(Graph& graph) {
  for (GraphNode& n : graph.nodes) {
    if (n.in.empty() || !ir::is_elementwise(n.op)) continue;
    bool known = true;
    for (const NodeId in : n.in) known &= graph[in].op == Op::constant;
    if (!known || !rounds_alike(graph, n)) continue;
    ir::Builder(graph).redefine(n, Op::constant, {}, ir::Constant{value_of(graph, n)});
  }
  return Replacement(graph).finish();
}

}  // namespace kiln::transform
