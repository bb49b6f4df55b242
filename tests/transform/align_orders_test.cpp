#include "transform/align_orders.h"

#include "transform/transformed.h"

#include <algorithm>

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

/// x · y over the last axis, both of the extents `all` once their axes are exchanged.
NodeId sum_of_product(GraphBuilder& b, const GraphBuilder::Extents& x, const GraphBuilder::Extents& y,
                      const GraphBuilder::Extents& all) {
  const auto operand = [&](const GraphBuilder::Extents& axes) {
    GraphBuilder::Extents extents(all.size());
    for (std::size_t a = 0; a < axes.size(); ++a) extents[static_cast<std::size_t>(axes[a])] = all[a];
    const NodeId leaf = b.leaf(DType::Float32, extents);
    return std::is_sorted(axes.begin(), axes.end()) ? leaf : b.permute(leaf, axes);
  };
  const NodeId left = operand(x), right = operand(y);
  return b.reduce(Op::reduce_sum, b.op(Op::multiply, {left, right}), std::uint64_t{1} << (all.size() - 1));
}

std::int64_t aligned(const GraphBuilder::Extents& x, const GraphBuilder::Extents& y,
                     const GraphBuilder::Extents& all) {
  GraphBuilder b;
  b.root(sum_of_product(b, x, y, all));
  align_orders(b.graph);
  ir::verify(b.graph);
  return std::count_if(b.graph.nodes.begin(), b.graph.nodes.end(),
                       [](const auto& n) { return n.op == Op::arrange; });
}

TEST(AlignOrders, OneOfTwoOrders) {
  EXPECT_EQ(aligned({1, 0}, {0, 1}, {512, 300}), 1);
  EXPECT_EQ(aligned({0, 1}, {1, 0}, {512, 300}), 1);
  EXPECT_EQ(aligned({2, 1, 0}, {0, 1, 2}, {512, 10, 30}), 1);
}

TEST(AlignOrders, EqualOrdersAndFewElementsStay) {
  EXPECT_EQ(aligned({1, 0}, {1, 0}, {512, 300}), 0);
  EXPECT_EQ(aligned({1, 0, 2}, {0, 1, 2}, {512, 10, 30}), 0);  // the last axis is the innermost of both
  EXPECT_EQ(aligned({2, 1, 0}, {0, 1, 2}, {512, 300, 1}), 1);
  EXPECT_EQ(aligned({0, 2, 1}, {0, 1, 2}, {512, 300, 1}), 0);  // an axis of one element tells nothing apart
  EXPECT_EQ(aligned({1, 0}, {0, 1}, {51, 30}), 0);
}

TEST(AlignOrders, KeepsValues) {
  GraphBuilder b;
  b.root(sum_of_product(b, {2, 0, 1}, {0, 1, 2}, {90, 80, 20}));
  const auto before = b.values();
  align_orders(b.graph);
  ir::verify(b.graph);
  EXPECT_EQ(before, b.values());
}

}  // namespace
}  // namespace kiln::transform
