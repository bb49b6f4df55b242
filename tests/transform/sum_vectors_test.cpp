#include "transform/sum_vectors.h"

#include "transform/transformed.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;
using Extents = GraphBuilder::Extents;

/// Whether the product becomes a reduction, of the same value.
bool sums(GraphBuilder& b, NodeId product) {
  b.root(product);
  const auto before = b.values();
  sum_vectors(b.graph);
  ir::verify(b.graph);
  EXPECT_EQ(before, b.values()) << ir::print(b.graph);  // halves and quarters: every sum is exact
  return std::ranges::none_of(b.graph.nodes, [](const auto& n) { return n.op == Op::matmul; });
}

bool sums(DType dtype, const Extents& x, const Extents& y) {
  GraphBuilder b;
  return sums(b, b.matmul(b.leaf(dtype, x), b.leaf(dtype, y)));
}

/// Extents of what is reduced, and the axes.
std::pair<Extents, std::uint64_t> reduced(const GraphBuilder& b) {
  const auto sum = std::ranges::find(b.graph.nodes, Op::reduce_sum, &ir::GraphNode::op);
  if (sum == b.graph.nodes.end()) return {};
  return {b.extents(sum->in[0]), ir::attributes<ir::Reduce>(*sum).mask};
}

TEST(SumVectors, HalvesWithOneRowOrColumn) {
  for (const DType half : {DType::Float16, DType::BFloat16}) {
    EXPECT_TRUE(sums(half, {1, 6}, {6, 5}));
    EXPECT_TRUE(sums(half, {5, 6}, {6, 1}));
    EXPECT_TRUE(sums(half, {1, 6}, {6, 1}));
    EXPECT_TRUE(sums(half, {1, 1, 6}, {1, 6, 5}));
    EXPECT_TRUE(sums(half, {1, 5, 6}, {1, 6, 1}));
    EXPECT_TRUE(sums(half, {2, 6}, {6, 5}));
    EXPECT_FALSE(sums(half, {5, 6}, {6, 2})) << "two sums along adjacent elements";
    EXPECT_FALSE(sums(half, {3, 6}, {6, 5}));
    EXPECT_FALSE(sums(half, {3, 1, 6}, {3, 6, 5})) << "a batch";
    EXPECT_FALSE(sums(half, {1, 0}, {0, 5}));
  }
}

TEST(SumVectors, SumsOfOneTermAreMaps) {
  for (const DType dtype : {DType::Float32, DType::Float64, DType::BFloat16})
    for (const auto& [m, n] : {std::pair{6, 5}, {1, 5}, {6, 1}, {1, 1}, {0, 5}}) {
      EXPECT_TRUE(sums(dtype, {m, 1}, {1, n}));
      EXPECT_TRUE(sums(dtype, {1, 1, m, 1}, {1, 1, 1, n}));
      EXPECT_FALSE(sums(dtype, {2, 3, m, 1}, {2, 3, 1, n})) << "a batch";
    }
  EXPECT_FALSE(sums(DType::Int32, {6, 1}, {1, 5}));
  GraphBuilder b;
  EXPECT_TRUE(sums(b, b.matmul(b.leaf(DType::Float32, {6, 1}), b.leaf(DType::Float32, {1, 5}))));
  EXPECT_EQ(std::ranges::count(b.graph.nodes, Op::reduce_sum, &ir::GraphNode::op), 0);
}

TEST(SumVectors, TwoVectorsOfAMatrixThatIsMade) {
  for (const bool turned : {false, true})
    for (const DType dtype : {DType::Float32, DType::BFloat16}) {
      GraphBuilder rows;
      const NodeId bytes = rows.leaf(DType::Int8, turned ? Extents{5, 6} : Extents{6, 5});
      const NodeId wide = rows.cast(turned ? rows.permute(bytes, {1, 0}) : bytes, dtype);
      EXPECT_TRUE(sums(rows, rows.matmul(rows.leaf(dtype, {2, 6}), wide)));
      GraphBuilder columns;
      const NodeId other = columns.leaf(DType::Int8, turned ? Extents{6, 5} : Extents{5, 6});
      const NodeId made = columns.cast(turned ? columns.permute(other, {1, 0}) : other, dtype);
      EXPECT_TRUE(sums(columns, columns.matmul(made, columns.leaf(dtype, {6, 2}))));
    }
}

TEST(SumVectors, OtherFloatsWhereTheMatrixIsMade) {
  for (const DType dtype : {DType::Float32, DType::Float64}) {
    EXPECT_FALSE(sums(dtype, {1, 6}, {6, 5})) << "the library reads it as fast";
    GraphBuilder b;
    const NodeId scaled =
        b.op(Op::multiply, {b.cast(b.leaf(DType::Int8, {6, 5}), dtype), b.leaf(dtype, {1, 5})});
    EXPECT_TRUE(sums(b, b.matmul(b.leaf(dtype, {1, 6}), scaled)));
    GraphBuilder read;
    const NodeId wide = read.cast(read.leaf(DType::Int8, {6, 5}), dtype);
    read.root(wide);
    EXPECT_FALSE(sums(read, read.matmul(read.leaf(dtype, {1, 6}), wide))) << "it is stored for others";
  }
  EXPECT_FALSE(sums(DType::Int32, {1, 6}, {6, 5})) << "integers";
}

TEST(SumVectors, TheMatrixIsReadAsItLiesInMemory) {
  constexpr DType half = DType::BFloat16;
  const auto of = [](const std::function<NodeId(GraphBuilder&)>& product) {
    GraphBuilder b;
    EXPECT_TRUE(sums(b, product(b)));
    return reduced(b);
  };
  const auto vector = [](GraphBuilder& b) { return b.leaf(half, {1, 6}); };
  EXPECT_EQ(of([&](GraphBuilder& b) { return b.matmul(vector(b), b.leaf(half, {6, 5})); }),
            std::pair(Extents{1, 6, 5}, std::uint64_t{2}));
  EXPECT_EQ(of([&](GraphBuilder& b) { return b.matmul(vector(b), b.permute(b.leaf(half, {5, 6}), {1, 0})); }),
            std::pair(Extents{1, 5, 6}, std::uint64_t{4}));
  EXPECT_EQ(of([&](GraphBuilder& b) {
              const NodeId bytes = b.permute(b.leaf(DType::Int8, {5, 6}), {1, 0});
              return b.matmul(vector(b), b.op(Op::multiply, {b.leaf(half, {1, 5}), b.cast(bytes, half)}));
            }),
            std::pair(Extents{1, 5, 6}, std::uint64_t{4}));
  EXPECT_EQ(of([&](GraphBuilder& b) { return b.matmul(b.leaf(half, {5, 6}), b.leaf(half, {6, 1})); }),
            std::pair(Extents{1, 5, 6}, std::uint64_t{4}));
  EXPECT_EQ(of([&](GraphBuilder& b) {
              return b.matmul(b.permute(b.leaf(half, {6, 5}), {1, 0}), b.leaf(half, {6, 1}));
            }),
            std::pair(Extents{1, 6, 5}, std::uint64_t{2}));
}

/// As for a GPU; how many reductions there are.
std::ptrdiff_t sums_apart(DType dtype, const Extents& x, const Extents& y, const VectorCosts& costs) {
  GraphBuilder b;
  b.root(b.matmul(b.leaf(dtype, x), b.leaf(dtype, y)));
  const auto before = b.values();
  sum_vectors(b.graph, costs);
  ir::verify(b.graph);
  EXPECT_EQ(before, b.values()) << ir::print(b.graph);
  return std::ranges::count(b.graph.nodes, Op::reduce_sum, &ir::GraphNode::op);
}

TEST(SumVectors, EachVectorHasAReductionOfItsOwnOnAGpu) {
  const VectorCosts costs{
      .apart = true, .most_terms = 6, .most_across = 4, .most_of_two = 6, .least_sums = 5};
  for (const DType dtype : {DType::Float32, DType::Float64, DType::BFloat16}) {
    EXPECT_EQ(sums_apart(dtype, {5, 6}, {6, 1}, costs), 1);
    EXPECT_EQ(sums_apart(dtype, {5, 6}, {6, 2}, costs), 2);
    EXPECT_EQ(sums_apart(dtype, {1, 4}, {4, 5}, costs), 1);
    EXPECT_EQ(sums_apart(dtype, {1, 1, 2, 4}, {1, 1, 4, 5}, costs), 2);
    EXPECT_EQ(sums_apart(dtype, {2, 6}, {6, 5}, costs), 0) << "long sums across memory";
    EXPECT_EQ(sums_apart(dtype, {5, 7}, {7, 2}, costs), 0) << "long sums";
    EXPECT_EQ(sums_apart(dtype, {4, 6}, {6, 2}, costs), 0) << "few sums";
    EXPECT_EQ(sums_apart(dtype, {5, 6}, {6, 3}, costs), 0) << "many vectors";
    EXPECT_EQ(sums_apart(dtype, {2, 5, 6}, {2, 6, 1}, costs), 0) << "a batch";
  }
  EXPECT_EQ(sums_apart(DType::Int32, {5, 6}, {6, 1}, costs), 0);
}

}  // namespace
}  // namespace kiln::transform
