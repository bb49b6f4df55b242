// Positions that vary on a line become arguments; those that do not stay part of the plan.
#include "api/expect.h"
#include "counted.h"
#include "modes.h"
#include "needs_cpu.h"

#include <kiln/config.h>

#include <functional>
#include <thread>
#include <vector>

namespace kiln {
namespace {

using test::count;
using test::Counted;
using testing::counting;
using testing::expect_equal;
using testing::ModeScope;

class Positions : public ::testing::Test {
 protected:
  void SetUp() override { clear_memory_caches(); }
};

TEST_F(Positions, ALoopOverSlicesHitsOnePlan) {
  const Tensor x = counting({64, 8}).eval();
  std::vector<float> got;
  const auto step = [&](std::int64_t t) { got.push_back(sum(x(range(t, t + 1)) * 2.0).item<float>()); };
  step(0);
  step(1);
  const Counted rest = count([&] {
    for (std::int64_t t = 2; t < 64; ++t) step(t);
  });
  EXPECT_EQ(rest.plan_misses, 0);
  EXPECT_EQ(rest.plan_hits, 62);
  for (std::size_t t = 0; t < 64; ++t) EXPECT_EQ(got[t], 2 * (64.0f * static_cast<float>(t) + 28)) << t;
}

TEST_F(Positions, ALoopOverUpdatesHitsOnePlan) {
  Tensor cache = zeros({2, 16, 4}).eval();
  const auto step = [&](std::int64_t t) {
    cache(slice::all(), range(t, t + 1)) = full({2, 1, 4}, static_cast<double>(t + 1)) + 0.5;
    cache.eval();
  };
  for (std::int64_t t = 0; t < 3; ++t) step(t);  // the first finds other memory: zeros of one element
  const Counted rest = count([&] {
    for (std::int64_t t = 3; t < 16; ++t) step(t);
  });
  EXPECT_EQ(rest.plan_misses, 0);
  for (std::int64_t t = 0; t < 16; ++t)
    expect_equal<float>(cache(1, t), std::vector<float>(4, static_cast<float>(t) + 1.5f));
}

TEST_F(Positions, SeveralAxesStepsAndBackwardSlices) {
  const Tensor x = counting({12, 10}).eval();
  const auto reference = [](std::int64_t i, std::int64_t j) { return static_cast<float>(10 * i + j); };
  for (std::int64_t t = 0; t < 6; ++t) {
    SCOPED_TRACE(t);
    const Tensor a = x(range(t + 4, t, -2), range(t, t + 4, 2)) + 1.0;
    expect_equal<float>(a, {2, 2},
                        {reference(t + 4, t) + 1, reference(t + 4, t + 2) + 1, reference(t + 2, t) + 1,
                         reference(t + 2, t + 2) + 1});
    Tensor y = zeros({12, 10});
    y(range(t + 4, t, -2), range(t, t + 4, 2)) = a;
    y(0, range(t, t + 1)) = 7;
    std::vector<float> want(120);
    for (std::int64_t i : {t + 4, t + 2})
      for (std::int64_t j : {t, t + 2}) want[static_cast<std::size_t>(10 * i + j)] = reference(i, j) + 1;
    want[static_cast<std::size_t>(t)] = 7;
    expect_equal<float>(y, {12, 10}, want);
    const Tensor shifted = pad(x(range(0, 2)), {{t, 6 - t}, {0, 0}}, 3) * 1.0;
    EXPECT_EQ(shifted(t, 4).item<float>(), 4);
    EXPECT_EQ(sum(shifted).item<float>(), 190.0f + 3 * 60);
  }
  const Counted again = count([&] {
    EXPECT_EQ(sum(x(range(10, 6, -2), range(6, 10, 2)) + 1.0).item<float>(), 106 + 108 + 86 + 88 + 4);
  });
  EXPECT_LE(again.plan_misses, 1);
}

/// The same line as the taps of a stencil, at every evaluation the same.
TEST_F(Positions, AStencilInALoopStaysStatic) {
  const ModeScope lazy(Mode::Lazy);
  const Tensor x = counting({100}).eval();
  const auto blur = [&](double factor) {
    Tensor sum = zeros({96});
    for (std::int64_t k = 0; k < 5; ++k)
      sum = sum + x(range(k, k + 96)) * (factor * static_cast<double>(k + 1));
    return sum.eval();
  };
  const Counted first = count([&] { expect_equal<float>(blur(1)(range(0, 2)), {40, 55}); });
  EXPECT_EQ(first.launches, 1);
  const Counted rest = count([&] {
    for (int i = 2; i < 10; ++i) blur(i);
  });
  EXPECT_EQ(rest.plan_misses, 0);
  EXPECT_EQ(rest.compiled, 0);
}

/// A view of memory is no copy, whether its position varies or not.
TEST_F(Positions, AViewStaysAView) {
  const Tensor x = counting({64, 8}).eval();
  const Counted all = count([&] {
    for (std::int64_t t = 0; t < 20; ++t) {
      const Tensor row = x(t, range(t % 4, t % 4 + 2)).eval();
      EXPECT_EQ(row(1).item<float>(), static_cast<float>(8 * t + t % 4 + 1));
    }
  });
  EXPECT_EQ(all.launches, 0);
  EXPECT_LE(all.plan_misses, 6);
}

/// Operands of library calls begin where the slot says.
TEST_F(Positions, MinibatchesAreReadInPlace) {
  const Tensor x = counting({32, 4}).eval(), w = ones({4, 3}).eval();
  const auto step = [&](std::int64_t i) { return matmul(x(range(4 * i, 4 * i + 4)), w).eval(); };
  step(0), step(1);
  const Counted rest = count([&] {
    for (std::int64_t i = 2; i < 8; ++i) {
      const Tensor y = step(i);
      for (std::int64_t r = 0; r < 4; ++r)
        EXPECT_EQ(y(r, 0).item<float>(), static_cast<float>(64 * i + 16 * r + 6));
    }
  });
  EXPECT_EQ(rest.library_calls, 6);
  EXPECT_EQ(rest.launches, 0);
  for (std::int64_t i = 0; i < 8; ++i)
    expect_equal<float>(sort(-x(range(4 * i, 4 * i + 2), 0)),
                        {-16.0f * static_cast<float>(i) - 4, -16.0f * static_cast<float>(i)});
}

/// Equal positions are one argument while they stay equal, and two from then on.
TEST_F(Positions, PositionsThatPart) {
  KILN_NEEDS_CPU();
  const Tensor x = counting({64}).eval(), y = counting({64}).eval();
  const auto step = [&](std::int64_t a, std::int64_t b) {
    const float got = sum(x(range(a, a + 2)) * y(range(b, b + 2))).item<float>();
    EXPECT_EQ(got, static_cast<float>(a * b + (a + 1) * (b + 1))) << a << ' ' << b;
  };
  for (std::int64_t t = 0; t < 8; ++t) step(t, t);
  step(3, 5);
  const Counted apart = count([&] {
    for (std::int64_t t = 0; t < 8; ++t) step(t, 2 * t);
  });
  EXPECT_EQ(apart.plan_misses, 0);
}

/// Extents are structure: each is a plan of its own.
TEST_F(Positions, AGrowingExtentPlansAgain) {
  const Tensor x = counting({16}).eval();
  const Counted all = count([&] {
    for (std::int64_t t = 0; t < 8; ++t)
      EXPECT_EQ(sum(x(range(0, t + 1)) * 1.0).item<float>(), static_cast<float>(t * (t + 1) / 2));
  });
  EXPECT_EQ(all.plan_misses, 8);
  // A fixed extent with a mask is one plan.
  const auto masked = [&](std::int64_t t) { return sum(where(arange(16) <= t, x, 0)).item<float>(); };
  masked(0);
  const Counted fixed = count([&] {
    for (std::int64_t t = 1; t < 8; ++t) EXPECT_EQ(masked(t), static_cast<float>(t * (t + 1) / 2));
  });
  EXPECT_EQ(fixed.plan_misses, 0);
}

/// Two lines of one structure learn apart.
TEST_F(Positions, TwoLinesStayStatic) {
  const Tensor x = counting({64}).eval();
  const auto left = [&] { return sum(x(range(1, 33)) * 2.0).item<float>(); };
  const auto right = [&] { return sum(x(range(2, 34)) * 2.0).item<float>(); };
  left(), right();
  const Counted rest = count([&] {
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(left(), 1056);
      EXPECT_EQ(right(), 1120);
    }
  });
  EXPECT_EQ(rest.plan_misses, 0);
}

TEST_F(Positions, EveryOperationAlone) {
  const ModeScope eager(Mode::Eager);
  const Tensor x = counting({64}).eval();
  Tensor y = zeros({64});
  for (std::int64_t t = 0; t < 30; ++t) y(range(t, t + 2)) = x(range(t + 1, t + 3)) + 0.5;
  for (std::int64_t t = 0; t < 31; ++t) EXPECT_EQ(y(t).item<float>(), static_cast<float>(t) + 1.5f);
}

TEST_F(Positions, ManyThreads) {
  const Tensor x = counting({256}).eval();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (std::int64_t t = i; t < 100; t += 3)
        EXPECT_EQ(sum(x(range(t, t + 4)) * 1.0).item<float>(), static_cast<float>(4 * t + 6));
    });
  for (std::thread& t : threads) t.join();
}

/// What one recording holds is compared with what the next one does, also where a long one is cut.
TEST_F(Positions, LongRecordings) {
  Tensor y = zeros({3000});
  const Tensor x = counting({3000}).eval();
  const Counted all = count([&] {
    for (std::int64_t t = 0; t < 2999; ++t) y(range(t, t + 1)) = x(range(t + 1, t + 2)) * 2.0;
    y.eval();
  });
  for (std::int64_t t = 0; t < 2999; t += 97) EXPECT_EQ(y(t).item<float>(), static_cast<float>(2 * t + 2));
  EXPECT_LE(all.plan_misses, 12);
}

}  // namespace
}  // namespace kiln
