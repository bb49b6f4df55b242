#include "transform/center_products.h"

#include "kernel/expr.h"
#include "transform/dce.h"
#include "transform/transformed.h"

#include <algorithm>
#include <cmath>

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

constexpr NestCosts kCosts{.rows = 8, .results = 1, .most_terms = 16};

/// A product of 200 rows, with what is made of it.
struct Rows : GraphBuilder {
  explicit Rows(std::int64_t terms = 5, DType dtype = DType::Float32)
      : product(matmul(leaf(dtype, {200, terms}), leaf(dtype, {terms, 16}))) {}
  NodeId number(double x) { return scalar(DType::Float32, kernel::const_bits(DType::Float32, x)); }
  /// The squares about the mean, added up.
  NodeId squares(NodeId x, std::uint64_t axes = 2) {
    const NodeId mean = op(Op::divide, {reduce(Op::reduce_sum, x, axes), number(16)});
    const NodeId apart = op(Op::subtract, {x, mean});
    return reduce(Op::reduce_sum, op(Op::multiply, {apart, apart}), axes);
  }
  const NodeId product;
};

/// Reductions as long as the product that are left of a graph, whose values stay.
std::ptrdiff_t reductions(Rows& b) {
  const std::vector<float> before = floats(b.values().front());
  center_products(b.graph, kCosts);
  dce(b.graph);
  ir::verify(b.graph);
  const std::vector<float> after = floats(b.values().front());
  EXPECT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_NEAR(before[i], after[i], 1e-5f * std::abs(before[i])) << i << "\n" << ir::print(b.graph);
  return std::ranges::count_if(b.graph.nodes, [&](const ir::GraphNode& n) {
    return ir::is_reduce(n.op) && b.graph[n.in[0]].numel >= 200 * 16;
  });
}

TEST(CenterProducts, AVarianceReducesAProductOnce) {
  Rows plain, mapped;
  plain.root(plain.squares(plain.product));
  EXPECT_EQ(reductions(plain), 1);
  const NodeId half = mapped.op(Op::multiply, {mapped.product, mapped.number(0.5)});
  const NodeId bias = mapped.broadcast(mapped.leaf(DType::Float32, {16}), {200, 16});
  mapped.root(mapped.squares(mapped.op(Op::add, {half, bias})));
  EXPECT_EQ(reductions(mapped), 1);
}

TEST(CenterProducts, NotWhereTheProductOrItsMeanIsRead) {
  const auto stays = [](auto&& make) {
    Rows b;
    make(b);
    return reductions(b) == 2;
  };
  EXPECT_FALSE(stays([](Rows& b) { b.root(b.squares(b.product)); }));
  EXPECT_TRUE(stays([](Rows& b) {
    b.root(b.squares(b.product));
    b.root(b.product);
  }));
  EXPECT_TRUE(stays([](Rows& b) { b.root(b.squares(b.op(Op::tanh, {b.product}))); })) << "no linear map";
  EXPECT_TRUE(stays([](Rows& b) {
    b.root(b.squares(b.product));
    const auto mean = std::ranges::find(b.graph.nodes, Op::divide, &ir::GraphNode::op);
    b.root(static_cast<NodeId>(mean - b.graph.nodes.begin()));
  }));
}

TEST(CenterProducts, NotWhereItWouldBeNoNest) {
  Rows longer(17), columns, halves(5, DType::BFloat16);
  longer.root(longer.squares(longer.product));
  EXPECT_EQ(reductions(longer), 2) << "the library's";
  columns.root(columns.squares(columns.product, 1));
  EXPECT_EQ(reductions(columns), 2) << "means of columns";
  halves.root(halves.squares(halves.cast(halves.product, DType::Float32)));
  EXPECT_EQ(reductions(halves), 2) << "columns less their mean are no halves";
}

}  // namespace
}  // namespace kiln::transform
