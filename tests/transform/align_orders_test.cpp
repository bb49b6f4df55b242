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

/// x times a small operand with the axes of `w`, exchanged to be the last of x's.
std::int64_t aligned_spread(const GraphBuilder::Extents& x, const GraphBuilder::Extents& w,
                            const GraphBuilder::Extents& axes) {
  GraphBuilder b;
  b.root(b.op(Op::multiply, {b.leaf(DType::Float32, x), b.permute(b.leaf(DType::Float32, w), axes)}));
  align_orders(b.graph);
  ir::verify(b.graph);
  return std::count_if(b.graph.nodes.begin(), b.graph.nodes.end(),
                       [](const auto& n) { return n.op == Op::arrange; });
}

TEST(AlignOrders, ASmallOperandAcrossTheLanes) {
  EXPECT_EQ(aligned_spread({4096, 8, 128}, {128, 8}, {1, 0}), 1);
  EXPECT_EQ(aligned_spread({4096, 8, 128}, {8, 128}, {0, 1}), 0);    // it lies along them
  EXPECT_EQ(aligned_spread({4096, 128, 8}, {8, 128}, {1, 0}), 0);    // few lanes
  EXPECT_EQ(aligned_spread({64, 8, 128}, {128, 8}, {1, 0}), 0);      // few points
  EXPECT_EQ(aligned_spread({32, 512, 128}, {128, 512}, {1, 0}), 0);  // that meet an element seldom
}

/// Windows of an image are read along its channels, whose filters lie one behind the other.
TEST(AlignOrders, FiltersByChannelsInTheLastAxis) {
  GraphBuilder b;
  const NodeId x = b.pad(b.leaf(DType::Float32, {20, 64, 30, 32}), b.leaf(DType::Float32, {}),
                         {20, 66, 30, 32}, {0, 1, 1, 1, 0, 1, 0, 1}),
               w = b.leaf(DType::Float16, {32, 3});
  const auto term = [&](std::int64_t t) {
    const NodeId rows = b.slice(x, {20, 64, 30, 32}, {0, 1, t, 1, 0, 1, 0, 1}),
                 factor = b.reshape(b.slice(b.cast(w, DType::Float32), {32, 1}, {0, 1, t, 1}), {32});
    return b.op(Op::multiply, {rows, factor});
  };
  b.root(b.op(Op::add, {b.op(Op::add, {term(0), term(1)}), term(2)}));
  const auto before = b.values();
  align_orders(b.graph);
  ir::verify(b.graph);
  EXPECT_EQ(before, b.values());
  EXPECT_EQ(std::count_if(b.graph.nodes.begin(), b.graph.nodes.end(),
                          [](const auto& n) { return n.op == Op::arrange; }),
            3);
}

}  // namespace
}  // namespace kiln::transform
