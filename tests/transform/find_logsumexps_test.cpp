#include "transform/find_logsumexps.h"

#include "transform/dce.h"
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

struct Parts {
  NodeId x, greatest, weights, log;
};
Parts parts(GraphBuilder& b, std::uint64_t greatest_over = 2) {
  const NodeId x = b.leaf(DType::Float32, {6, 50}), m = b.reduce(Op::reduce_max, x, greatest_over);
  const NodeId weights = b.op(Op::exp, {b.op(Op::subtract, {x, m})});
  return {x, m, weights, b.op(Op::log, {b.reduce(Op::reduce_sum, weights, 2)})};
}

TEST(FindLogsumexps, TheGreatestAndTheLogarithmAreOneReduction) {
  for (const bool turned : {false, true}) {
    GraphBuilder b;
    const Parts p = parts(b);
    b.root(turned ? b.op(Op::add, {p.log, p.greatest}) : b.op(Op::add, {p.greatest, p.log}));
    const float infinite[] = {kInf, -kInf};
    for (int row = 0; row < 2; ++row)  // one with +inf in it, one of nothing but -inf
      for (int i = 0; i < (row == 0 ? 1 : 50); ++i)
        std::memcpy(b.memory(0).data() + (50 * row + i) * sizeof(float), &infinite[row], sizeof(float));
    const std::vector<float> expected = floats(b.values().front());
    find_logsumexps(b.graph);
    dce(b.graph);
    ir::verify(b.graph);
    EXPECT_EQ(count(b, Op::reduce_logaddexp), 1);
    EXPECT_EQ(count(b, Op::reduce_max), 0) << "the only reduction";
    EXPECT_EQ(b.graph[b.graph.roots.front()].op, Op::add);
    const std::vector<float> found = floats(b.values().front());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(std::isnan(found[i]), i < 2) << i;
      EXPECT_EQ(std::isnan(expected[i]), i < 2) << i;
      if (i >= 2) EXPECT_NEAR(found[i], expected[i], 4e-7f * std::abs(expected[i])) << i;
    }
  }
}

TEST(FindLogsumexps, NotWhereTheSumOrItsLogarithmIsReadAlone) {
  const auto stays = [](const auto& ask) {
    GraphBuilder b;
    const Parts p = parts(b);
    ask(b, p);
    b.root(b.op(Op::add, {p.greatest, p.log}));
    find_logsumexps(b.graph);
    return count(b, Op::reduce_logaddexp) == 0;
  };
  EXPECT_FALSE(stays([](GraphBuilder& b, const Parts& p) { b.root(p.greatest); }));
  EXPECT_TRUE(stays([](GraphBuilder& b, const Parts& p) { b.root(p.log); }));
  EXPECT_TRUE(stays([](GraphBuilder& b, const Parts& p) { b.root(p.weights); }));
}

TEST(FindLogsumexps, NotRelativeToAnotherMaximum) {
  GraphBuilder b;
  const Parts p = parts(b, 3);
  b.root(b.op(Op::add, {p.greatest, p.log}));
  find_logsumexps(b.graph);
  EXPECT_EQ(count(b, Op::reduce_logaddexp), 0);
}

}  // namespace
}  // namespace kiln::transform
