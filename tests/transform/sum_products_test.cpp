#include "transform/sum_products.h"

#include "transform/transformed.h"

#include <algorithm>

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

TEST(SumProducts, EveryProductBecomesASumOfTheSameValue) {
  for (int d = 0; d < kDTypeCount; ++d)
    for (const auto& [m, k, n] :
         {std::tuple{3, 4, 5}, {1, 4, 5}, {3, 4, 1}, {1, 6, 1}, {3, 1, 5}, {2, 0, 3}, {0, 2, 3}})
      for (const GraphBuilder::Extents& batch : {GraphBuilder::Extents{}, {2}, {2, 1, 3}}) {
        GraphBuilder b;
        const auto matrix = [&](std::int64_t r, std::int64_t c) {
          GraphBuilder::Extents dims = batch;
          dims.insert(dims.end(), {r, c});
          return b.leaf(static_cast<DType>(d), dims);
        };
        const NodeId product = b.matmul(matrix(m, k), matrix(k, n));
        b.root(product);
        const auto before = b.values();
        const Renumbering now = sum_products(b.graph);
        ir::verify(b.graph);
        EXPECT_TRUE(std::none_of(b.graph.nodes.begin(), b.graph.nodes.end(),
                                 [](const auto& x) { return x.op == Op::matmul; }));
        EXPECT_EQ(b.graph.roots, std::vector<NodeId>{now[product]});
        EXPECT_EQ(before, b.values()) << ir::print(b.graph);  // halves and quarters: every sum is exact
      }
}

TEST(SumProducts, TheSummedAxisIsNotTheLastLongerThanOne) {
  for (const auto& [m, n] : {std::pair{3, 5}, {3, 1}, {1, 5}}) {
    GraphBuilder b;
    b.root(b.matmul(b.leaf(DType::Float32, {m, 7}), b.leaf(DType::Float32, {7, n})));
    sum_products(b.graph);
    const auto sum = std::find_if(b.graph.nodes.begin(), b.graph.nodes.end(),
                                  [](const auto& x) { return x.op == Op::reduce_sum; });
    ASSERT_NE(sum, b.graph.nodes.end());
    EXPECT_EQ(ir::attributes<ir::Reduce>(*sum).mask, 2u);
    EXPECT_GT(sum->dims.back(), 1);
  }
}

TEST(SumProducts, ProductsOfTheHighestRankStay) {
  GraphBuilder b;
  GraphBuilder::Extents dims(kMaxRank, 1);
  b.root(b.matmul(b.leaf(DType::Float32, dims), b.leaf(DType::Float32, dims)));
  sum_products(b.graph);
  ir::verify(b.graph);
  EXPECT_EQ(b.graph[b.graph.roots[0]].op, Op::matmul);
}

}  // namespace
}  // namespace kiln::transform
