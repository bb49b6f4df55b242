#include "transform/arrange_operands.h"

#include "transform/transformed.h"

#include <algorithm>

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

/// How many operands of a reduction over the last axis of x - y are stored in another order.
std::int64_t arranged(const GraphBuilder::Extents& x, const GraphBuilder::Extents& y,
                      const GraphBuilder::Extents& all, std::uint64_t mask) {
  GraphBuilder b;
  const NodeId left = b.broadcast(b.leaf(DType::Float32, x), all),
               right = b.broadcast(b.leaf(DType::Float16, y), all);
  b.root(b.reduce(Op::reduce_max, b.op(Op::subtract, {left, b.cast(right, DType::Float32)}), mask));
  arrange_operands(b.graph, 32);
  ir::verify(b.graph);
  return std::count_if(b.graph.nodes.begin(), b.graph.nodes.end(),
                       [](const auto& n) { return n.op == Op::arrange; });
}

TEST(ArrangeOperands, OfPairsTheOneAcross) {
  EXPECT_EQ(arranged({2048, 1, 16}, {256, 16}, {2048, 256, 16}, 4), 1);
  EXPECT_EQ(arranged({2048, 1, 16, 1}, {256, 16, 1}, {2048, 256, 16, 1}, 4), 1);
  EXPECT_EQ(arranged({2, 1024, 1, 16}, {2, 1, 256, 16}, {2, 1024, 256, 16}, 8), 1);
}

TEST(ArrangeOperands, WhatIsReadOnceOrShortStays) {
  EXPECT_EQ(arranged({2048, 256, 16}, {256, 16}, {2048, 256, 16}, 4), 0);  // a value for every point
  EXPECT_EQ(arranged({2048, 1, 16}, {256, 16}, {2048, 256, 16}, 2), 0);    // another axis
  EXPECT_EQ(arranged({2048, 1, 16}, {256, 16}, {2048, 256, 16}, 6), 0);    // two of them
  EXPECT_EQ(arranged({64, 1, 16}, {256, 16}, {64, 256, 16}, 4), 0);        // few points
  EXPECT_EQ(arranged({65536, 1, 16}, {8, 16}, {65536, 8, 16}, 4), 0);      // few results side by side
}

/// A few elements are stored as what they are converted to, many as what they are read from.
TEST(ArrangeOperands, FewElementsAreConvertedFirst) {
  for (const std::int64_t columns : {256, 8192}) {
    GraphBuilder b;
    const GraphBuilder::Extents all{2048, columns, 16};
    const NodeId left = b.broadcast(b.leaf(DType::Float32, {2048, 1, 16}), all),
                 right = b.cast(b.leaf(DType::Float16, {columns, 16}), DType::Float32);
    b.root(b.reduce(Op::reduce_max, b.op(Op::subtract, {left, b.broadcast(right, all)}), 4));
    arrange_operands(b.graph, 32);
    ir::verify(b.graph);
    for (const auto& n : b.graph.nodes)
      if (n.op == Op::arrange) EXPECT_EQ(n.dtype, columns == 256 ? DType::Float32 : DType::Float16);
  }
}

TEST(ArrangeOperands, KeepsValues) {
  GraphBuilder b;
  const NodeId x = b.leaf(DType::Float32, {4096, 1, 2}), y = b.leaf(DType::Float32, {512, 2});
  b.root(b.reduce(Op::reduce_sum,
                  b.op(Op::multiply, {b.broadcast(x, {4096, 512, 2}), b.broadcast(y, {4096, 512, 2})}), 4));
  const auto before = b.values();
  arrange_operands(b.graph, 32);
  ir::verify(b.graph);
  EXPECT_EQ(before, b.values());
}

}  // namespace
}  // namespace kiln::transform
