// Updates in place: what is written into the memory of the old value, and what must not be.
#include "api/expect.h"
#include "counted.h"
#include "modes.h"

#include <kiln/config.h>

#include <numeric>
#include <thread>
#include <vector>

namespace kiln {
namespace {

using test::count;
using test::Counted;
using testing::counting;
using testing::expect_equal;
using testing::ModeScope;

/// 64 rows of 64: large enough to be worth it.
class Donate : public ::testing::Test {
 protected:
  void SetUp() override { clear_memory_caches(); }
  static Tensor fresh() {
    std::vector<float> v(64 * 64);
    std::iota(v.begin(), v.end(), 0.0f);
    return Tensor::from(v, {64, 64}) * 1.0;  // in memory of its own
  }
  static float was(std::int64_t i, std::int64_t j) { return static_cast<float>(64 * i + j); }
  ModeScope lazy_{Mode::Lazy};
};

TEST_F(Donate, AnUpdateWritesTheBoxAlone) {
  Tensor x = fresh().eval();
  const float* before = x.data<float>();
  x(range(3, 5), range(10, 20, 2)) = -1;
  x.eval();
  EXPECT_EQ(x.data<float>(), before);
  for (std::int64_t i = 0; i < 64; ++i)
    for (std::int64_t j = 0; j < 64; ++j) {
      const bool inside = (i == 3 || i == 4) && j >= 10 && j < 20 && j % 2 == 0;
      ASSERT_EQ(x(i, j).item<float>(), inside ? -1 : was(i, j)) << i << ' ' << j;
    }
}

/// A thousand steps of decoding: from the sixth on every plan is there, and no memory moves.
TEST_F(Donate, AKeyValueCacheStaysInPlace) {
  constexpr std::int64_t kSteps = 1000, kWidth = 8;
  Tensor keys = (zeros({2, kSteps, kWidth}) * 1.0).eval();
  const float* place = nullptr;
  const auto step = [&](std::int64_t t) {
    keys(slice::all(), range(t, t + 1)) = full({2, 1, kWidth}, static_cast<double>(t)) + 1.0;
    const Tensor scores = sum(keys * full({kWidth}, 0.5), -1);
    const Tensor seen = sum(where(arange(kSteps) <= t, scores, 0));
    eval({keys, seen});
    EXPECT_EQ(seen.item<float>(), static_cast<float>(kWidth * (t + 1) * (t + 2) / 2)) << t;
    if (t > 1) {
      EXPECT_EQ(keys.data<float>(), place) << t;
    }
    place = keys.data<float>();
  };
  for (std::int64_t t = 0; t < 6; ++t) step(t);
  const Counted rest = count([&] {
    for (std::int64_t t = 6; t < kSteps; ++t) step(t);
  });
  EXPECT_EQ(rest.plan_misses, 0);
  for (std::int64_t t = 0; t < kSteps; t += 111)
    EXPECT_EQ(keys(1, t, 3).item<float>(), static_cast<float>(t + 1));
}

TEST_F(Donate, WhoHoldsTheOldValueKeepsIt) {
  Tensor x = fresh().eval();
  const Tensor old = x;
  x(0) = -5;
  x.eval();
  EXPECT_EQ(old(0, 7).item<float>(), 7);
  EXPECT_EQ(x(0, 7).item<float>(), -5);
  EXPECT_NE(old.data<float>(), x.data<float>());
  // A view keeps the memory.
  const Tensor row = x(5).eval();
  x(5) = -6;
  x.eval();
  EXPECT_EQ(row(1).item<float>(), was(5, 1));
  EXPECT_EQ(x(5, 1).item<float>(), -6);
}

TEST_F(Donate, WhatIsPendingOnTheOldValueIsComputedFromIt) {
  Tensor x = fresh().eval();
  const Tensor doubled = x * 2.0, row = x(0);
  x(0) = -5;
  x.eval();
  EXPECT_EQ(doubled(0, 7).item<float>(), 14);
  EXPECT_EQ(row(3).item<float>(), 3);
  EXPECT_EQ(x(0, 7).item<float>(), -5);
  // Read in the same evaluation, on either side of the update.
  for (const bool first : {true, false}) {
    Tensor y = fresh().eval();
    const Tensor total = sum(y), bent = sum(flip(y, 0) * y);
    y(range(0, 2)) = 0;
    const Tensor after = sum(y);
    eval(first ? std::initializer_list<Tensor>{total, bent, y, after}
               : std::initializer_list<Tensor>{after, y, bent, total});
    const double n = 64 * 64, all = n * (n - 1) / 2, cut = 128.0 * 127 / 2;
    EXPECT_NEAR(total.item<float>(), all, all * 1e-6);
    EXPECT_NEAR(after.item<float>(), all - cut, all * 1e-6);
  }
}

/// Of the pending part nothing is left where the mean of its copies is a sum of elements of x.
TEST_F(Donate, APendingValueThatTransformsDropIsComputedFromTheOldValue) {
  Tensor x = fresh().eval();
  const Tensor part = x(range(14, 15), range(1, 2)).reshape({1});
  const Tensor means = mean(stack({part, part}, 1) * 1.5, 1);
  x(range(14, 16), range(0, 8)) = -5;
  eval({means, x});
  EXPECT_EQ(part.item<float>(), was(14, 1));
  EXPECT_EQ(means.item<float>(), was(14, 1) * 1.5f);
  EXPECT_EQ(x(14, 1).item<float>(), -5);
}

TEST_F(Donate, ABodyMadeOfTheOldValue) {
  for (int k = 0; k < 3; ++k) {
    Tensor x = fresh().eval();
    const float* before = x.data<float>();
    x(range(k, k + 2), range(8, 16)) += 100;
    x.eval();
    EXPECT_EQ(x.data<float>(), before);
    EXPECT_EQ(x(k + 1, 9).item<float>(), was(k + 1, 9) + 100);
    EXPECT_EQ(x(k + 1, 16).item<float>(), was(k + 1, 16));
    // Moved along: each element is read after its neighbour was written, unless the whole is a copy.
    Tensor y = fresh().eval();
    y(slice::all(), range(1 + k, 64)) = y(slice::all(), range(0, 63 - k));
    y.eval();
    for (std::int64_t j = 0; j < 64; ++j)
      EXPECT_EQ(y(9, j).item<float>(), was(9, j <= k ? j : j - 1 - k)) << j;
    // Columns from a sum over all.
    Tensor z = fresh().eval();
    z(slice::all(), k) = sum(z, 1) - sum(z, 0);
    z.eval();
    EXPECT_EQ(z(0, k).item<float>(), 2016.0f - 129024.0f);
    EXPECT_EQ(z(0, k + 1).item<float>(), static_cast<float>(k + 1));
  }
}

TEST_F(Donate, ReadersOfTheNewValue) {
  for (std::int64_t t = 0; t < 4; ++t) {
    Tensor x = fresh().eval();
    const Tensor w = ones({64, 3}).eval();
    x(range(t, t + 1)) = zeros({1, 64});
    const Tensor product = matmul(transpose(x), w), shifted = x(range(1, 64)) + x(range(0, 63)),
                 sorted = sort(x, 0);
    eval({product, shifted, sorted, x});
    EXPECT_EQ(product(5, 2).item<float>(), 129024.0f + 64 * 5 - was(t, 5));
    EXPECT_EQ(shifted(t, 5).item<float>(), was(t + 1, 5));
    EXPECT_EQ(sorted(0, 5).item<float>(), 0);
    EXPECT_EQ(x(t, 5).item<float>(), 0);
  }
}

TEST_F(Donate, PositionsInTensors) {
  Tensor x = fresh().eval();
  const float* before = x.data<float>();
  for (std::int64_t t = 0; t < 5; ++t) {
    const Tensor at = Tensor::from(std::vector<std::int64_t>{t, 2 * t + 1});
    x = dynamic_update_slice(x, full({2, 3}, -static_cast<double>(t)) - 1.0, at + 1);
    x = x.eval();
    EXPECT_EQ(x.data<float>(), before) << t;
    EXPECT_EQ(x(t + 1, 2 * t + 2).item<float>(), -static_cast<float>(t) - 1);
    EXPECT_EQ(x(t + 2, 2 * t + 4).item<float>(), -static_cast<float>(t) - 1);
    EXPECT_EQ(x(t + 3, 2 * t + 4).item<float>(), was(t + 3, 2 * t + 4));
  }
  const Tensor three = Tensor(3);
  x = dynamic_update_slice(x, dynamic_slice(x, {three, 0}, {2, 64}) * 2.0, {three, 0});
  x.eval();
  EXPECT_EQ(x.data<float>(), before);
  EXPECT_EQ(x(4, 60).item<float>(), 2 * was(4, 60));
}

TEST_F(Donate, Scatters) {
  Tensor x = fresh().eval();
  const float* before = x.data<float>();
  for (int i = 0; i < 3; ++i) {
    x = scatter_add(x, Tensor::from(std::vector<std::int32_t>{5, 9, 5}), ones({3, 64}), 0);
    x.eval();
    EXPECT_EQ(x.data<float>(), before);
  }
  EXPECT_EQ(x(5, 2).item<float>(), was(5, 2) + 6);
  EXPECT_EQ(x(9, 2).item<float>(), was(9, 2) + 3);
  const Tensor old = x;
  x = scatter_add(x, Tensor::from(std::vector<std::int32_t>{5}), ones({1, 64}), 0).eval();
  EXPECT_EQ(old(5, 2).item<float>(), was(5, 2) + 6);
}

TEST_F(Donate, BorrowedMemoryIsNotWritten) {
  std::vector<float> mine(64 * 64, 1);
  Tensor x = Tensor::borrow(mine.data(), {64, 64}, [](const void*) {});
  x(0) = 2;
  x.eval();
  EXPECT_EQ(mine[3], 1);
  EXPECT_EQ(x(0, 3).item<float>(), 2);
}

TEST_F(Donate, ChecksSeeTheOldValues) {
  Config options = config();
  const Config before = options;
  options.check_diff = true;
  configure(options);
  Tensor x = fresh().eval();
  x(range(1, 2)) += 5;
  EXPECT_NO_THROW(x.eval());
  EXPECT_EQ(x(1, 0).item<float>(), 69);
  configure(before);
}

/// A loop has its states to itself, but for the first values, which somebody else may have.
TEST_F(Donate, StatesOfLoops) {
  const Tensor first = fresh().eval();
  const auto fill = [](const Tensors& c, const Tensors& in) {
    const Tensor next =
        dynamic_update_slice(c[1], (in[0] + dynamic_slice(c[1], {c[0], 0}, {1, 64})), {c[0], 0});
    return Scanned{{c[0] + 2, next}, {sum(next)}};
  };
  const Scanned out = scan(fill, {Tensor(0), first}, {ones({10, 1, 64})});
  eval({out.carry[1], out.ys[0]});
  for (std::int64_t i = 0; i < 64; ++i)
    EXPECT_EQ(out.carry[1](i, 3).item<float>(), was(i, 3) + (i % 2 == 0 && i < 20));
  for (std::int64_t k = 0; k < 10; ++k)
    EXPECT_NEAR(out.ys[0](k).item<float>(), 4096.0 * 4095 / 2 + 64 * (k + 1), 2) << k;
  EXPECT_EQ(first(2, 3).item<float>(), was(2, 3));
  // States that swap, show each other, and are written by two updates.
  const Tensors swapped = while_loop([](const Tensors& s) { return s[0] < 5; },
                                     [](const Tensors& s) {
                                       const Tensor a =
                                           dynamic_update_slice(s[1], full({1, 64}, -1.0), {s[0], 0});
                                       return Tensors{s[0] + 1, s[2], a, transpose(a)};
                                     },
                                     {Tensor(0), first, first * 2.0, first});
  eval(swapped);
  for (std::int64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(swapped[1](i, 5).item<float>(), i == 1 || i == 3 ? -1 : 2 * was(i, 5)) << i;
    EXPECT_EQ(swapped[2](i, 5).item<float>(), i == 0 || i == 2 || i == 4 ? -1 : was(i, 5)) << i;
    EXPECT_EQ(swapped[3](5, i).item<float>(), swapped[2](i, 5).item<float>()) << i;
  }
  EXPECT_EQ(first(0, 5).item<float>(), 5);
}

/// Several threads evaluate what depends on one update: whoever comes second waits, and finds the new value.
TEST_F(Donate, ThreadsThatShareAnUpdate) {
  for (int round = 0; round < 50; ++round) {
    Tensor x = fresh().eval();
    x(range(round, round + 1)) += 1000;
    const Tensor changed = x(round) * 1.0, total = sum(x, 1);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&, i] {
        const Tensor mine = i % 2 ? changed + 0.0 : total * 1.0;
        const float got = mine(i % 2 ? 5 : round).item<float>();
        EXPECT_EQ(got, i % 2 ? was(round, 5) + 1000 : static_cast<float>(64 * 64 * round + 2016 + 64000));
      });
    x.eval();
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(x(round, 5).item<float>(), was(round, 5) + 1000);
  }
}

}  // namespace
}  // namespace kiln
