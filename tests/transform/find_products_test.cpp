#include "transform/find_products.h"

#include "transform/transformed.h"

#include <algorithm>

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

constexpr DType f32 = DType::Float32;

std::int64_t products(const GraphBuilder::Extents& x, const GraphBuilder::Extents& y,
                      const GraphBuilder::Extents& all, std::uint64_t mask, DType type = f32) {
  GraphBuilder b;
  const NodeId left = b.broadcast(b.leaf(type, x), all), right = b.broadcast(b.leaf(type, y), all);
  b.root(b.reduce(Op::reduce_sum, b.op(Op::multiply, {left, right}), mask));
  find_products(b.graph);
  ir::verify(b.graph);
  return std::count_if(b.graph.nodes.begin(), b.graph.nodes.end(),
                       [](const auto& n) { return n.op == Op::matmul; });
}

TEST(FindProducts, SumsOverAnAxisThatBothOperandsHave) {
  EXPECT_EQ(products({64, 32, 1}, {1, 32, 48}, {64, 32, 48}, 2), 1);
  EXPECT_EQ(products({64, 1, 32}, {48, 32}, {64, 48, 32}, 4), 1);
  EXPECT_EQ(products({32, 1, 48}, {32, 64, 1}, {32, 64, 48}, 1), 1);
  EXPECT_EQ(products({5, 64, 1, 32}, {5, 1, 48, 32}, {5, 64, 48, 32}, 8), 1) << "a batch axis";
  EXPECT_EQ(products({64, 5, 1, 32}, {5, 48, 32}, {64, 5, 48, 32}, 8), 1) << "a batch axis between";
  EXPECT_EQ(products({64, 32, 1}, {1, 32, 48}, {64, 32, 48}, 2, DType::BFloat16), 1);
}

TEST(FindProducts, WhatIsNoMatrixProductOrTooSmallStays) {
  EXPECT_EQ(products({64, 32, 48}, {1, 32, 48}, {64, 32, 48}, 2), 0) << "one operand has all axes";
  EXPECT_EQ(products({64, 32, 1}, {1, 1, 48}, {64, 32, 48}, 2), 0) << "a sum of one operand";
  EXPECT_EQ(products({64, 32, 1}, {1, 32, 48}, {64, 32, 48}, 4), 0) << "a sum over a free axis";
  EXPECT_EQ(products({64, 32, 1}, {1, 32, 4}, {64, 32, 4}, 2), 0) << "few columns";
  EXPECT_EQ(products({8, 4, 1}, {1, 4, 8}, {8, 4, 8}, 2), 0) << "little work";
  EXPECT_EQ(products({64, 32, 1}, {1, 32, 48}, {64, 32, 48}, 2, DType::Int32), 0);
}

}  // namespace
}  // namespace kiln::transform
