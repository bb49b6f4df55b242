#include "transform/pair_maxima.h"

#include "transform/transformed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace kiln::transform {
namespace {

using ir::GraphBuilder;
using ir::NodeId;
using ir::Op;

constexpr float kInf = std::numeric_limits<float>::infinity();

/// The weights of a softmax and their sum. `greatest_over`: the axes of the maximum.
void softmax(GraphBuilder& b, NodeId x, std::uint64_t axes, std::uint64_t greatest_over) {
  const NodeId m = b.reduce(Op::reduce_max, x, greatest_over);
  const NodeId weights = b.op(Op::exp, {b.op(Op::subtract, {x, m})});
  const NodeId sum = b.reduce(Op::reduce_sum, weights, axes);
  b.root(b.op(Op::divide, {weights, sum}));
  b.root(sum);
}

bool never(const ReducedRows&, NodeId) { return false; }

TEST(PairMaxima, TheSumNoLongerReadsTheMaximum) {
  for (const std::uint64_t axes : {1, 2, 3}) {
    GraphBuilder b;
    softmax(b, b.leaf(DType::Float32, {6, 50}), axes, axes);
    const auto expected = b.values();
    pair_maxima(b.graph, never);
    ir::verify(b.graph);
    EXPECT_EQ(count(b, Op::reduce_logaddexp), 1);
    EXPECT_EQ(b.graph[b.graph.roots.back()].dtype, DType::Float32);
    const auto found = b.values();
    for (std::size_t root = 0; root < 2; ++root) {
      const std::vector<float> now = floats(found[root]), before = floats(expected[root]);
      for (std::size_t i = 0; i < now.size(); ++i) EXPECT_NEAR(now[i], before[i], 4e-7f * before[i]) << i;
    }
  }
}

/// Great elements leave the logarithm no digits in Float32; infinities and NaN are in the sum as before.
TEST(PairMaxima, OfGreatAndOfSpecialElements) {
  GraphBuilder b;
  softmax(b, b.leaf(DType::Float32, {4, 64}), 2, 2);
  for (int i = 0; i < 4 * 64; ++i) {
    const float x = i < 64     ? 1e8f + static_cast<float>(i % 2) * 8
                    : i < 128  ? (i == 70 ? kInf : 1.0f)
                    : i < 192  ? -kInf
                    : i == 200 ? std::numeric_limits<float>::quiet_NaN()
                               : 2.0f;
    std::memcpy(b.memory(0).data() + static_cast<std::size_t>(i) * sizeof x, &x, sizeof x);
  }
  const std::vector<float> expected = floats(b.values().back());
  pair_maxima(b.graph, never);
  const std::vector<float> found = floats(b.values().back());
  EXPECT_NEAR(found[0], expected[0], 4e-7f * expected[0]);
  for (std::size_t row = 1; row < 4; ++row) {
    EXPECT_TRUE(std::isnan(expected[row])) << row;
    EXPECT_TRUE(std::isnan(found[row])) << row;
  }
}

TEST(PairMaxima, NotWhereRowsStayOnChip) {
  GraphBuilder b;
  softmax(b, b.leaf(DType::Float32, {6, 50}), 2, 2);
  ReducedRows asked;
  pair_maxima(b.graph, [&](const ReducedRows& r, NodeId) {
    asked = r;
    return true;
  });
  EXPECT_EQ(count(b, Op::reduce_logaddexp), 0);
  EXPECT_EQ(asked.rows, 6);
  EXPECT_EQ(asked.length, 50);
}

TEST(PairMaxima, NotOtherAxesDtypesOrWhatAProductMakes) {
  const auto stays = [](GraphBuilder& b) {
    pair_maxima(b.graph, never);
    return count(b, Op::reduce_logaddexp) == 0;
  };
  GraphBuilder axes, wide, scores;
  softmax(axes, axes.leaf(DType::Float32, {6, 50}), 2, 3);
  softmax(wide, wide.leaf(DType::Float64, {6, 50}), 2, 2);
  const NodeId q = scores.leaf(DType::Float32, {6, 8}), k = scores.leaf(DType::Float32, {8, 50});
  softmax(scores, scores.op(Op::matmul, {q, k}), 2, 2);
  EXPECT_TRUE(stays(axes));
  EXPECT_TRUE(stays(wide));
  EXPECT_TRUE(stays(scores));
}

}  // namespace
}  // namespace kiln::transform
