#include "transform/nest_products.h"

#include "transform/dce.h"
#include "transform/transformed.h"

#include <algorithm>
#include <functional>

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

constexpr NestCosts kCosts{.rows = 8, .results = 1, .most_terms = 16, .most_of_halves = 8};

/// How many nodes of an operation are left of a graph with this root, whose values stay.
std::ptrdiff_t left(GraphBuilder& b, NodeId root, Op op, const NestCosts& costs = kCosts) {
  b.root(root);
  const auto before = b.values();
  sum_picks(b.graph, costs);
  nest_products(b.graph, costs);
  EXPECT_EQ(before, b.values()) << ir::print(b.graph);  // small numbers: every sum is exact
  dce(b.graph);
  ir::verify(b.graph);
  return std::ranges::count(b.graph.nodes, op, &ir::GraphNode::op);
}

NodeId product(GraphBuilder& b, DType dtype = DType::Float32, std::int64_t terms = 5) {
  return b.matmul(b.leaf(dtype, {10, terms}), b.leaf(dtype, {terms, 13}));
}

TEST(NestProducts, ProductsWhoseRowsAreReduced) {
  for (const Op op : {Op::reduce_sum, Op::reduce_max, Op::reduce_min, Op::reduce_argmax, Op::reduce_argmin}) {
    GraphBuilder alone, mapped;
    EXPECT_EQ(left(alone, alone.reduce(op, product(alone), 2), Op::matmul), 0);
    const NodeId bias = mapped.broadcast(mapped.leaf(DType::Float32, {13}), {10, 13});
    EXPECT_EQ(left(mapped, mapped.reduce(op, mapped.op(Op::add, {product(mapped), bias}), 2), Op::matmul), 0);
  }
}

/// A half of the sum is not wanted, and not made.
TEST(NestProducts, SumsOfHalvesStayAsTheyAre) {
  GraphBuilder b;
  b.root(b.reduce(Op::reduce_max, b.cast(product(b, DType::BFloat16), DType::Float32), 2));
  nest_products(b.graph, kCosts);
  dce(b.graph);
  ir::verify(b.graph);
  EXPECT_TRUE(std::ranges::none_of(b.graph.nodes, [](const auto& n) {
    return n.op == Op::matmul || (n.op == Op::cast && n.dtype == DType::BFloat16);
  })) << ir::print(b.graph);
}

TEST(NestProducts, AnElementThatALabelPicksIsASum) {
  const auto picked = [](GraphBuilder& b, NodeId y) {
    const NodeId label = b.op(Op::subtract, {b.iota(DType::Int64, {10, 1}, 0), b.constant(DType::Int64, 5)});
    return b.add(Op::gather, {y, label}, ir::Gather{1}, {.dims = Shape{10, 1}});
  };
  GraphBuilder reduced, alone;
  const NodeId y = product(reduced);
  const NodeId most = reduced.reduce(Op::reduce_max, y, 2);
  EXPECT_EQ(left(reduced, reduced.op(Op::subtract, {most, picked(reduced, y)}), Op::gather), 0);
  EXPECT_EQ(left(alone, picked(alone, product(alone)), Op::gather), 1) << "few elements are wanted";
}

TEST(NestProducts, OthersStay) {
  const auto stays = [](const std::function<NodeId(GraphBuilder&)>& make, NestCosts costs = kCosts) {
    GraphBuilder b;
    return left(b, make(b), Op::matmul, costs) == 1;
  };
  EXPECT_TRUE(stays([](GraphBuilder& b) { return product(b); })) << "the product is stored";
  EXPECT_TRUE(stays([](GraphBuilder& b) { return b.reduce(Op::reduce_max, product(b), 1); }))
      << "its columns are reduced";
  EXPECT_TRUE(stays([](GraphBuilder& b) {
    const NodeId y = product(b);
    const NodeId most = b.broadcast(b.reduce(Op::reduce_max, y, 2), {10, 13});
    return b.reduce(Op::reduce_sum, b.op(Op::subtract, {y, most}), 2);
  })) << "rows are needed twice";
  EXPECT_TRUE(stays([](GraphBuilder& b) {
    return b.reduce(Op::reduce_max, product(b, DType::Float32, 17), 2);
  })) << "the library makes long sums";
  EXPECT_TRUE(stays([](GraphBuilder& b) {
    return b.reduce(Op::reduce_max, product(b, DType::Float16, 9), 2);
  })) << "matrix units make sums of halves";
  EXPECT_TRUE(stays([](GraphBuilder& b) { return b.reduce(Op::reduce_max, product(b, DType::Float64), 2); }));
  const NestCosts many{.rows = 11, .results = 1, .most_terms = 16};
  EXPECT_TRUE(stays([](GraphBuilder& b) { return b.reduce(Op::reduce_max, product(b), 2); }, many));
  EXPECT_TRUE(stays([](GraphBuilder& b) { return b.reduce(Op::reduce_max, product(b), 2); }, NestCosts{}));
}

}  // namespace
}  // namespace kiln::transform
