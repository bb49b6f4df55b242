// Terminates: one walk in topological order; the operands of a join become fewer with every round.
#include "transform/split_joins.h"

#include "ir/builder.h"
#include "transform/nouns.h"
#include "transform/rebuild.h"

#include <algorithm>
#include <vector>

namespace kiln::transform {
namespace {

bool is_long(const GraphNode& n) { return n.op == Op::join && n.in.size() > kMostJoined; }

}  // namespace

Renumbering split_joins(ir::Graph& graph) {
  if (std::ranges::none_of(graph.nodes, is_long)) return Replacement(graph).finish();
  ir::Builder add(graph);
  return rebuild(graph, [&](NodeId, GraphNode n) {
    if (!is_long(n)) return add.push(std::move(n));
    add.loc = n.loc;
    const auto how = ir::attributes<ir::Join>(n);
    std::vector<NodeId> in(n.in.begin(), n.in.end());
    while (in.size() > kMostJoined) {
      std::vector<NodeId> blocks;
      for (std::size_t i = 0; i < in.size(); i += kMostJoined) {
        const auto block = std::span(in).subspan(i, std::min(kMostJoined, in.size() - i));
        blocks.push_back(block.size() == 1 ? block[0] : add.add(Op::join, ir::Operands(block), how));
      }
      in = std::move(blocks);
    }
    n.in.assign(in);
    return add.push(std::move(n));
  });
}

}  // namespace kiln::transform
