#include "transform/split_joins.h"

#include "transform/transformed.h"

#include <vector>

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::Join;
using ir::NodeId;
using ir::Op;

/// Joins n leaves of two rows.
ir::Graph joined(std::size_t n) {
  GraphBuilder b;
  std::vector<NodeId> in;
  for (std::size_t i = 0; i < n; ++i) in.push_back(b.leaf(DType::Float32, {2, 3}));
  b.root(ir::Builder(b.graph).add(Op::join, ir::Operands(in), Join{0}));
  return checked_transform(b).graph;
}

TEST(SplitJoins, LeavesShortOnesAlone) {
  for (const std::size_t n : {2, 3, 4, 32}) {
    const ir::Graph g = joined(n);
    EXPECT_EQ(g.size(), n + 1);
    EXPECT_EQ(g[static_cast<NodeId>(n)].in.size(), n);
  }
}

TEST(SplitJoins, MakesBlocksOfLongOnes) {
  for (const std::size_t n : {33, 64, 1000, 1025, 3000}) {
    const ir::Graph g = joined(n);
    std::size_t joins = 0;
    for (const ir::GraphNode& node : g.nodes) {
      joins += node.op == Op::join;
      EXPECT_LE(node.in.size(), kMostJoined);
    }
    EXPECT_EQ(g[g.roots[0]].dims[0], static_cast<std::int64_t>(2 * n));
    EXPECT_LE(joins, n / 31 + 2);
  }
}

TEST(SplitJoins, EmptyOperandsGoAndOneIsItself) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Float32, {2, 3}), none = b.leaf(DType::Float32, {0, 3});
  const NodeId all = b.add(Op::join, {none, x, none}, Join{0});
  EXPECT_EQ(transformed(b, all), "%0 f32(2, 3) = leaf arg 0 held\nroots %0\n");
}

TEST(SplitJoins, OfOneConstantIsThatConstant) {
  GraphBuilder b;
  const NodeId one = b.constant(DType::Float32, 0x3f800000);
  const NodeId a = b.broadcast(one, {2, 3});
  EXPECT_EQ(transformed(b, b.add(Op::join, {a, a, a, a}, Join{1})),
            "%0 f32(2, 12) = constant 1 held\nroots %0\n");
}

}  // namespace
}  // namespace kiln::transform
