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

/// Products that are left of sums whose results are reduced, if `reduced`, by one over the columns.
std::int64_t products_of_nest(const GraphBuilder::Extents& all, bool reduced, DType type = f32) {
  GraphBuilder b;
  const NodeId left = b.broadcast(b.leaf(type, {all[0], 1, all[2]}), all),
               right = b.broadcast(b.leaf(type, {1, all[1], all[2]}), all);
  const NodeId sum = b.reduce(Op::reduce_sum, b.op(Op::multiply, {left, right}), 4);
  b.root(reduced ? b.reduce(Op::reduce_argmin, b.op(Op::negative, {sum}), 2) : sum);
  find_products(b.graph, 64);
  ir::verify(b.graph);
  return std::count_if(b.graph.nodes.begin(), b.graph.nodes.end(),
                       [](const auto& n) { return n.op == Op::matmul; });
}

TEST(FindProducts, ShortSumsThatAreReducedFurtherStay) {
  EXPECT_EQ(products_of_nest({4096, 1024, 64}, true), 0);
  EXPECT_EQ(products_of_nest({4096, 1024, 65}, true), 1) << "long sums";
  EXPECT_EQ(products_of_nest({4096, 1024, 64}, false), 1) << "all results are wanted";
  EXPECT_EQ(products_of_nest({1024, 1024, 64}, true), 1) << "few results";
  EXPECT_EQ(products_of_nest({4096, 1024, 64}, true, DType::Float64), 1);
}

}  // namespace
}  // namespace kiln::transform
