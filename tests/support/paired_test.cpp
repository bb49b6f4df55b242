// Intervals of paired comparisons: that they cover, and when they say nothing.
#include "support/paired.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace kiln {
namespace {

TEST(Paired, AnIntervalOfOrderStatistics) {
  std::vector<double> ones(15, 1.0), ratios;
  for (int i = 1; i <= 15; ++i) ratios.push_back(i);
  const Interval i = median_ratio(ratios, ones, 0.02);
  // Two coins of 15 or fewer come up with probability 0.0037: two ratios are left out at either end.
  EXPECT_EQ(i.low, 3);
  EXPECT_EQ(i.median, 8);
  EXPECT_EQ(i.high, 13);
}

TEST(Paired, TooFewPairsSayNothing) {
  const Interval i = median_ratio({2, 2, 2, 2, 2, 2}, {1, 1, 1, 1, 1, 1}, 0.02);
  EXPECT_EQ(i.low, 0);
  EXPECT_EQ(i.median, 2);
  EXPECT_TRUE(std::isinf(i.high));
  const Interval j = median_ratio({2, 3, 4, 5, 6, 7, 8}, {1, 1, 1, 1, 1, 1, 1}, 0.02);
  EXPECT_EQ(j.low, 2);
  EXPECT_EQ(j.high, 8);
}

TEST(Paired, IntervalsCoverTheMedianAsOftenAsTheySay) {
  std::mt19937 random(7);
  // Skewed, as times are: a few are much longer.
  std::lognormal_distribution<double> times(0.0, 0.5);
  for (const std::size_t n : {7u, 15u, 30u, 60u}) {
    int outside = 0;
    constexpr int kRounds = 4000;
    for (int round = 0; round < kRounds; ++round) {
      std::vector<double> first(n), second(n, 1.0);
      for (double& t : first) t = times(random);
      const Interval i = median_ratio(first, second, 0.02);
      outside += i.low > 1 || i.high < 1;  // the distribution's median is 1
    }
    EXPECT_LE(outside, kRounds * 0.026) << n;
  }
}

TEST(Paired, OneBadTimeDoesNotMoveTheInterval) {
  std::vector<double> before(15, 1.2), with(15, 1.0);
  with[3] = 50;
  EXPECT_GT(median_ratio(before, with, 0.02).low, 1.19);
}

}  // namespace
}  // namespace kiln
