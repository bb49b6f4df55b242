#include "transform/write_out_sums.h"

#include "transform/dce.h"
#include "transform/transformed.h"

#include <algorithm>

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

/// Whether the node becomes maps, while the values stay.
bool is_written_out(GraphBuilder& b, NodeId root, Op op, std::int64_t most_terms = 3) {
  b.root(root);
  const auto before = b.values();
  write_out_sums(b.graph, {.most_terms = most_terms, .pairs = 4});
  EXPECT_EQ(before, b.values()) << ir::print(b.graph);  // halves of small numbers: every sum is exact
  dce(b.graph);
  ir::verify(b.graph);
  return std::ranges::none_of(b.graph.nodes, [&](const auto& n) {
    return n.op == op && n.dims[n.dims.size() - 1] == (op == Op::matmul ? 8 : 1) && n.numel > 8;
  });
}

/// |x[i, k] - y[j, k]|
NodeId pairs(GraphBuilder& b, DType dtype, std::int64_t terms) {
  return b.op(Op::abs, {b.op(Op::subtract, {b.leaf(dtype, {8, 1, terms}), b.leaf(dtype, {1, 8, terms})})});
}

TEST(WriteOutSums, ReductionsOfPairsThatAreReducedFurther) {
  for (const DType dtype : {DType::Float32, DType::Float64})
    for (const Op op : {Op::reduce_sum, Op::reduce_max, Op::reduce_min, Op::reduce_prod})
      for (const std::int64_t terms : {2, 3}) {
        GraphBuilder b;
        const NodeId inner = b.reduce(op, pairs(b, dtype, terms), 4);
        EXPECT_TRUE(is_written_out(b, b.reduce(Op::reduce_argmin, inner, 2), op)) << terms;
      }
  GraphBuilder halves;
  const NodeId wide =
      halves.cast(halves.reduce(Op::reduce_sum, pairs(halves, DType::BFloat16, 3), 4), DType::Float32);
  EXPECT_TRUE(is_written_out(halves, halves.reduce(Op::reduce_max, wide, 2), Op::reduce_sum));
}

TEST(WriteOutSums, ProductsWithShortSumsThatAreReduced) {
  for (const DType dtype : {DType::Float32, DType::BFloat16}) {
    GraphBuilder b;
    const NodeId product = b.matmul(b.leaf(dtype, {2, 8, 3}), b.leaf(dtype, {2, 3, 8}));
    EXPECT_TRUE(is_written_out(b, b.reduce(Op::reduce_max, b.op(Op::negative, {product}), 4), Op::matmul));
  }
}

TEST(WriteOutSums, OthersStay) {
  const auto stays = [](const auto& make, Op op = Op::reduce_sum) {
    GraphBuilder b;
    return !is_written_out(b, make(b), op);
  };
  EXPECT_TRUE(stays([](GraphBuilder& b) { return b.reduce(Op::reduce_sum, pairs(b, DType::Float32, 3), 4); }))
      << "the results are stored";
  EXPECT_TRUE(stays([](GraphBuilder& b) {
    return b.reduce(Op::reduce_max, b.reduce(Op::reduce_sum, pairs(b, DType::Float32, 4), 4), 2);
  })) << "long sums";
  EXPECT_TRUE(stays([](GraphBuilder& b) {
    return b.reduce(Op::reduce_max,
                    b.reduce(Op::reduce_sum, b.op(Op::abs, {b.leaf(DType::Float32, {8, 8, 3})}), 4), 2);
  })) << "each element is read once";
  EXPECT_TRUE(stays([](GraphBuilder& b) {
    return b.reduce(Op::reduce_max, b.reduce(Op::reduce_sum, pairs(b, DType::Int32, 3), 4), 2);
  })) << "integers";
  EXPECT_TRUE(stays(
      [](GraphBuilder& b) {
        return b.matmul(b.leaf(DType::Float32, {8, 3}), b.leaf(DType::Float32, {3, 8}));
      },
      Op::matmul));
  EXPECT_TRUE(stays(
      [](GraphBuilder& b) {
        const NodeId product = b.matmul(b.leaf(DType::Float32, {8, 3}), b.leaf(DType::Float32, {3, 8}));
        b.root(product);
        return b.reduce(Op::reduce_max, product, 2);
      },
      Op::matmul))
      << "it is asked for";
}

}  // namespace
}  // namespace kiln::transform
