// What an evaluation stores, and when its plan is found again.
#include "counted.h"
#include "engine/evaluate.h"
#include "record/node.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

using test::data;

TEST(Plan, AHeldValueMuchSmallerThanWhatItPinsIsStored) {
  Tensor loss;
  Tensor y;
  {
    const Tensor x = data({64, 1024});
    loss = sum(x * x);
    y = x / sqrt(loss);
  }
  y.eval();
  EXPECT_TRUE(loss.evaluated());
}

TEST(Plan, TheStepsOfAnExpressionOfASliceAreNotStored) {
  const Tensor memory = data({300, 401});
  const Tensor x = memory(range(10, 40), range(5, 25)), squares = x * x, moved = squares + 1.0f;
  const test::Counted c = test::count([&] { sum(moved, 0).eval(); });
  EXPECT_EQ(c.launches, 1u);
  EXPECT_FALSE(squares.evaluated());
  EXPECT_FALSE(moved.evaluated());
}

TEST(Plan, OfTheStepsToASmallValueTheFirstSmallOneIsStored) {
  const Tensor x = data({64, 1024});
  const Tensor loss = sum(x * x), twice = loss * 2.0f;
  (x / (twice + 1.0f)).eval();
  EXPECT_TRUE(loss.evaluated());
  EXPECT_FALSE(twice.evaluated());
}

TEST(Plan, AHeldValueAsLargeAsItsInputStaysLazy) {
  const Tensor x = data({64, 1024});
  const Tensor e = exp(x);
  const Tensor y = sum(e, -1);
  y.eval();
  EXPECT_FALSE(e.evaluated());
}

TEST(Plan, IsFoundAgainForOtherScalars) {
  const Tensor x = data({100});
  (x * 2.0 + 1.0).eval();
  reset_statistics();
  for (int i = 3; i < 50; ++i) (x * (i * 0.37) + (i * 1.1)).eval();
  EXPECT_EQ(statistics().kernels_compiled, 0u);
  EXPECT_LE(statistics().plan_misses, 1u);  // other source lines, one structure
}

TEST(Plan, OneLineWithOneValueAgainIsOneSlot) {
  auto half = [](const Tensor& t) { return tanh(t * 0.5f); };
  const Tensor x = data({100}), y = data({100});
  reset_statistics();
  const Tensor twice = half(x + y) - half(x + y);
  for (const float v : twice.to_vector<float>()) EXPECT_EQ(v, 0);
  auto scaled = [](const Tensor& t, float by) { return t * by; };
  const std::vector<float> a = (scaled(x, 2) + scaled(x, 3)).to_vector<float>();
  const std::vector<float> b = (scaled(x, 2) + scaled(x, 2)).to_vector<float>();
  const std::vector<float> c = (scaled(x, 5) + scaled(x, 7)).to_vector<float>();
  const std::vector<float> xs = x.to_vector<float>();
  for (std::size_t i = 0; i < xs.size(); ++i) {
    EXPECT_FLOAT_EQ(a[i], 5 * xs[i]);
    EXPECT_FLOAT_EQ(b[i], 4 * xs[i]);
    EXPECT_FLOAT_EQ(c[i], 12 * xs[i]);
  }
}

TEST(Plan, AComparisonOfTwoDtypesOnOneLineKeepsItsSlotsApart) {
  auto positive = [](const Tensor& t) { return t > 0.0; };
  const Tensor x = data({100}), d = x.astype(DType::Float64);
  const Tensor both = logical_and(positive(x), positive(d));
  const std::vector<float> xs = x.to_vector<float>();
  const std::vector<bool> got = both.to_vector<bool>();
  for (std::size_t i = 0; i < xs.size(); ++i) EXPECT_EQ(got[i], xs[i] > 0);
}

}  // namespace
}  // namespace kiln
