// Random draws: known answers, equality over modes and fusions, distributions, and errors.
#include "api/expect.h"
#include "counted.h"
#include "modes.h"
#include "oracle/reference.h"

#include <kiln/random.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

namespace kiln {
namespace {

using random::Key;
using testing::expect_equal;
using testing::expect_user_error;
using testing::in_every_mode;

constexpr std::int64_t kMany = 1 << 20;

// ---- bits ----

// The known-answer vectors of Random123 (kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, HasTheKnownAnswers) {
  const auto block = [](ir::ref::PhiloxBlock counter, std::uint64_t key) {
    const auto b = ir::ref::philox(counter, key);
    return std::vector<std::uint32_t>(b.word, b.word + 4);
  };
  EXPECT_EQ(block({{0, 0, 0, 0}}, 0),
            (std::vector<std::uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(block({{~0u, ~0u, ~0u, ~0u}}, ~std::uint64_t{0}),
            (std::vector<std::uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(block({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0x299f31d0a4093822),
            (std::vector<std::uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, IsTheSameInEveryMode) {
  in_every_mode([] {
    expect_equal<std::uint32_t>(random::bits(Key(0), {4}), {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    expect_equal<std::uint64_t>(random::bits(Key(0), {2}, DType::UInt64),
                                {0xe169c58d6627e8d5, 0x9b00dbd8bc57ac4c});
  });
}

/// Word i as the reference has it.
std::vector<std::uint32_t> words(std::uint64_t first, std::int64_t count, std::uint64_t key) {
  std::vector<std::uint32_t> out;
  for (std::uint64_t i = first; i < first + static_cast<std::uint64_t>(count); ++i)
    out.push_back(ir::ref::philox_word(i, key));
  return out;
}

TEST(Philox, EveryWayOfReadingGivesTheSameWords) {
  constexpr std::uint64_t kKey = 0x123456789abcdef0;
  const std::int64_t rows = 37, columns = 131;
  const Tensor all = random::bits(Key(kKey), {rows, columns});
  const std::vector<std::uint32_t> want = words(0, rows * columns, kKey);
  expect_equal(all, {rows, columns}, want);
  // Rows that begin anywhere in a block, backward, transposed, every second one, and one at a time.
  const Tensor again = random::bits(Key(kKey), {rows, columns});
  expect_equal(max(again, 1), {rows}, [&] {
    std::vector<std::uint32_t> greatest;
    for (std::int64_t r = 0; r < rows; ++r)
      greatest.push_back(*std::max_element(want.begin() + r * columns, want.begin() + (r + 1) * columns));
    return greatest;
  }());
  for (std::int64_t from : {1, 2, 3, 5}) {
    const Tensor part = random::bits(Key(kKey), {rows * columns})(range(from, from + 1001));
    expect_equal(part, {1001}, words(static_cast<std::uint64_t>(from), 1001, kKey));
  }
  std::vector<std::uint32_t> turned = want, across;
  std::reverse(turned.begin(), turned.end());
  for (std::int64_t c = 0; c < columns; ++c)
    for (std::int64_t r = 0; r < rows; ++r) across.push_back(want[static_cast<std::size_t>(r * columns + c)]);
  expect_equal(flip(random::bits(Key(kKey), {rows, columns})), {rows, columns}, turned);
  expect_equal(random::bits(Key(kKey), {rows, columns}).T() + 0, {columns, rows}, across);
  const Tensor index = Tensor::from(std::vector<std::int64_t>{7, 3, 1000000, 12});
  expect_equal<std::uint32_t>(
      philox(index, static_cast<std::int64_t>(kKey)),
      {words(7, 1, kKey)[0], words(3, 1, kKey)[0], words(1000000, 1, kKey)[0], words(12, 1, kKey)[0]});
}

TEST(Philox, DrawsBehindPaddingBeginWithTheirFirstWord) {
  constexpr std::int64_t kCount = 40;
  const std::vector<std::uint32_t> drawn = words(0, 2 * kCount, 7);
  in_every_mode([&] {
    for (std::int64_t before = 1; before <= 20; ++before) {
      std::vector<std::uint32_t> want(static_cast<std::size_t>(before));
      want.insert(want.end(), drawn.begin(), drawn.begin() + kCount);
      expect_equal(pad(random::bits(Key(7), {kCount}), {{before, 0}}), {before + kCount}, want);
      std::vector<std::uint64_t> pairs(static_cast<std::size_t>(before));
      for (std::size_t i = 0; i < kCount; ++i)
        pairs.push_back(drawn[2 * i] | std::uint64_t{drawn[2 * i + 1]} << 32);
      expect_equal(pad(random::bits(Key(7), {kCount}, DType::UInt64), {{before, 0}}), {before + kCount},
                   pairs);
    }
  });
}

TEST(Philox, CountersBeyond32BitsDiffer) {
  const std::int64_t far = (std::int64_t{1} << 34) + 5;
  const Tensor at = Tensor::from(std::vector<std::int64_t>{5, far});
  expect_equal<std::uint32_t>(philox(at, 99), {ir::ref::philox_word(5, 99),
                                               ir::ref::philox_word(static_cast<std::uint64_t>(far), 99)});
  EXPECT_NE(ir::ref::philox_word(5, 99), ir::ref::philox_word(static_cast<std::uint64_t>(far), 99));
}

TEST(Random, FusesWithWhatReadsIt) {
  const Tensor x = test::data({64, 100});
  Tensor out;
  const auto counted = test::count([&] {
    out = sum(x * random::bernoulli(Key(3), {64, 100}, 0.8) + random::normal(Key(4), {64, 100}), 1);
    out.eval();
  });
  EXPECT_EQ(counted.launches, 1u);
  const Tensor mask = random::bernoulli(Key(3), {64, 100}, 0.8), noise = random::normal(Key(4), {64, 100});
  eval({mask, noise});
  testing::expect_near(out - sum(x * mask + noise, 1), {64}, std::vector<double>(64, 0.0), 1e-4);
}

TEST(Random, ANewKeyCompilesNothing) {
  random::normal(Key(1), {1000}).eval();
  const auto counted = test::count([] { random::normal(Key(2), {1000}).eval(); });
  EXPECT_EQ(counted.compiled, 0u);
  EXPECT_EQ(counted.plan_misses, 0u);
}

TEST(Random, DrawsDoNotDependOnShapeOrMode) {
  std::vector<std::vector<float>> seen;
  in_every_mode([&] {
    seen.push_back(random::uniform(Key(5), {6, 35}).to_vector<float>());
    seen.push_back(random::uniform(Key(5), {210}).to_vector<float>());
    std::vector<float> longer = random::uniform(Key(5), {300}).to_vector<float>();
    longer.resize(210);
    seen.push_back(longer);
  });
  for (const auto& s : seen) EXPECT_EQ(s, seen[0]);
}

TEST(Random, ModesAgreeOnEveryDistribution) {
  const auto draws = [] {
    std::vector<Tensor> out;
    for (DType t : {DType::Float16, DType::BFloat16, DType::Float32, DType::Float64}) {
      out.push_back(random::uniform(Key(7), {33, 7}, t));
      out.push_back(random::uniform(Key(7), {33, 7}, -3.0, 5.0, t));
      out.push_back(random::normal(Key(8), {33, 7}, t));
      out.push_back(random::normal(Key(8), {33, 7}, 10.0, 0.5, t));
      out.push_back(random::exponential(Key(9), {33, 7}, t));
    }
    out.push_back(random::bernoulli(Key(10), {33, 7}, 0.3));
    for (DType t : {DType::Int8, DType::UInt8, DType::Int32, DType::UInt32, DType::Int64, DType::UInt64})
      out.push_back(random::randint(Key(11), {33, 7}, 0, 100, t));
    out.push_back(random::randint(Key(11), {33, 7}, INT64_MIN, INT64_MAX));
    out.push_back(random::permutation(Key(12), 231));
    eval(out);
    return out;
  };
  std::vector<std::vector<Tensor>> by_mode;
  in_every_mode([&] { by_mode.push_back(draws()); });
  for (std::size_t m = 1; m < by_mode.size(); ++m)
    for (std::size_t i = 0; i < by_mode[m].size(); ++i) {
      const DType t = by_mode[m][i].dtype();
      const double tolerance = t == DType::Float64    ? 1e-14
                               : t == DType::BFloat16 ? 8e-3
                               : is_half(t)           ? 1e-3
                                                      : 1e-6;
      const auto a = by_mode[m][i].astype(DType::Float64).to_vector<double>();
      const auto b = by_mode[0][i].astype(DType::Float64).to_vector<double>();
      for (std::size_t e = 0; e < a.size(); ++e)
        ASSERT_NEAR(a[e], b[e], is_float(t) ? tolerance * std::max(1.0, std::fabs(b[e])) : 0)
            << "draw " << i << " of " << name(t);
    }
}

// ---- keys ----

TEST(Keys, SplitAndFoldGiveDifferentKeys) {
  std::set<std::uint64_t> seen{Key(1).bits()};
  for (const Key& k : random::split(Key(1), 1000)) seen.insert(k.bits());
  for (std::uint64_t i = 0; i < 1000; ++i) seen.insert(random::fold_in(Key(1), i).bits());
  EXPECT_EQ(seen.size(), 2001u);
  const auto [a, b] = random::split<2>(Key(1));
  EXPECT_EQ(a, random::split(Key(1), 5)[0]);
  EXPECT_EQ(b, random::split(Key(1), 5)[1]);
  EXPECT_EQ(random::fold_in(Key(1), 3), random::fold_in(Key(1), 3));
}

/// A key that a tensor holds draws what the same number draws, and has the same children.
TEST(Keys, InTensorsDrawTheSame) {
  in_every_mode([] {
    const Key number(0x123456789abcdef0u);
    const Key held(Tensor::from(std::vector<std::uint64_t>{number.bits()}));
    EXPECT_TRUE(held.in_tensor());
    EXPECT_EQ(held, number);
    const auto same = [](const Tensor& a, const Tensor& b) {
      return all(a == b).item<bool>() && a.dtype() == b.dtype();
    };
    EXPECT_TRUE(same(random::bits(held, {33}), random::bits(number, {33})));
    EXPECT_TRUE(same(random::bits(held, {33}, DType::UInt64), random::bits(number, {33}, DType::UInt64)));
    for (DType t : {DType::Float16, DType::BFloat16, DType::Float32, DType::Float64}) {
      EXPECT_TRUE(same(random::uniform(held, {5, 7}, t), random::uniform(number, {5, 7}, t)));
      EXPECT_TRUE(same(random::normal(held, {5, 7}, t), random::normal(number, {5, 7}, t)));
      EXPECT_TRUE(same(random::exponential(held, {35}, t), random::exponential(number, {35}, t)));
    }
    EXPECT_TRUE(same(random::uniform(held, {9}, -2, 5), random::uniform(number, {9}, -2, 5)));
    EXPECT_TRUE(same(random::bernoulli(held, {40}, 0.25), random::bernoulli(number, {40}, 0.25)));
    EXPECT_TRUE(same(random::randint(held, {40}, -3, 99), random::randint(number, {40}, -3, 99)));
    EXPECT_TRUE(same(random::randint(held, {40}, INT64_MIN, INT64_MAX),
                     random::randint(number, {40}, INT64_MIN, INT64_MAX)));
    EXPECT_TRUE(same(random::permutation(held, 20), random::permutation(number, 20)));
    const std::vector<Key> a = random::split(held, 3), b = random::split(number, 3);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(a[i], b[i]);
    for (std::uint64_t step :
         {std::uint64_t{0}, std::uint64_t{7}, ~std::uint64_t{0}, std::uint64_t{1} << 40}) {
      EXPECT_EQ(random::fold_in(held, step), random::fold_in(number, step));
      EXPECT_EQ(random::fold_in(number, Tensor::from(std::vector<std::uint64_t>{step})),
                random::fold_in(number, step));
    }
    EXPECT_EQ(random::fold_in(held, Tensor(-1)), random::fold_in(number, ~std::uint64_t{0}));
  });
}

TEST(Keys, DrawInsideLoops) {
  in_every_mode([] {
    const Key key(42);
    // A key of each step, folded from its number.
    const Scanned folded = scan(
        [&](const Tensors& c, const Tensors&) {
          return Scanned{{c[0] + 1}, {random::uniform(random::fold_in(key, c[0]), {6})}};
        },
        {Tensor(0)}, {zeros({4})});
    for (std::int64_t i = 0; i < 4; ++i)
      expect_equal<float>(
          folded.ys[0](i),
          random::uniform(random::fold_in(key, static_cast<std::uint64_t>(i)), {6}).to_vector<float>());
    // A key that the loop carries and splits.
    const Scanned split = scan(
        [&](const Tensors& c, const Tensors&) {
          const auto [now, later] = random::split<2>(Key(c[0]));
          return Scanned{{later.tensor()}, {random::normal(now, {3})}};
        },
        {key.tensor()}, {zeros({3})});
    Key carried = key;
    for (std::int64_t i = 0; i < 3; ++i) {
      const auto [now, later] = random::split<2>(carried);
      expect_equal<float>(split.ys[0](i), random::normal(now, {3}).to_vector<float>());
      carried = later;
    }
    // Element by element, inside one kernel.
    const Tensors summed = while_loop(
        [](const Tensors& s) { return s[0] < 5; },
        [&](const Tensors& s) {
          return Tensors{s[0] + 1, s[1] + random::bits(random::fold_in(key, s[0]), {9}, DType::UInt64)};
        },
        {Tensor(0), zeros({9}, DType::UInt64)});
    Tensor want = zeros({9}, DType::UInt64);
    for (std::uint64_t i = 0; i < 5; ++i)
      want = want + random::bits(random::fold_in(key, i), {9}, DType::UInt64);
    EXPECT_TRUE(all(summed[1] == want).item<bool>());
  });
}

TEST(Keys, ATensorIsOneUint64) {
  expect_user_error([] { Key(Tensor(1.0f)); }, "[random::Key] a key is one uint64, not float32 ()");
  expect_user_error([] { Key(zeros({2}, DType::UInt64)); },
                    "[random::Key] a key is one uint64, not uint64 (2,)");
  expect_user_error([] { random::fold_in(Key(1), Tensor(1.5f)); },
                    "[fold_in] a number is one integer, not float32 ()");
}

TEST(Keys, ChildrenAreUncorrelated) {
  const auto [a, b] = random::split<2>(Key(42));
  const double r = mean(random::normal(a, {kMany}) * random::normal(b, {kMany})).item<double>();
  EXPECT_LT(std::fabs(r), 5 / std::sqrt(double{kMany}));
}

// ---- distributions ----

/// Chi-square of counts that should be equal, as standard deviations from its mean.
double chi_square_deviation(const std::vector<double>& counts) {
  const double expected =
      std::accumulate(counts.begin(), counts.end(), 0.0) / static_cast<double>(counts.size());
  double chi = 0;
  for (double c : counts) chi += (c - expected) * (c - expected) / expected;
  const double freedom = static_cast<double>(counts.size() - 1);
  return (chi - freedom) / std::sqrt(2 * freedom);
}

/// The greatest distance between the draws' distribution function and f, times the root of their number:
/// above 1.95 once in 1000.
template <class F>
double kolmogorov(std::vector<double> draws, F f) {
  std::sort(draws.begin(), draws.end());
  const double n = static_cast<double>(draws.size());
  double distance = 0;
  for (std::size_t i = 0; i < draws.size(); ++i) {
    const double at = f(draws[i]);
    distance = std::max({distance, at - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - at});
  }
  return distance * std::sqrt(n);
}

std::vector<double> doubles(const Tensor& t) { return t.astype(DType::Float64).to_vector<double>(); }
double phi(double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }

TEST(Uniform, IsUniformAndUncorrelated) {
  for (DType t : {DType::Float32, DType::Float64}) {
    const std::vector<double> u = doubles(random::uniform(Key(1), {kMany}, t));
    EXPECT_LT(kolmogorov(u, [](double x) { return x; }), 1.95) << name(t);
    std::vector<double> counts(1000), pairs(32 * 32);
    double serial[5] = {};
    for (std::size_t i = 0; i < u.size(); ++i) {
      ASSERT_TRUE(u[i] >= 0 && u[i] < 1);
      ++counts[static_cast<std::size_t>(u[i] * 1000)];
      if (i % 2) ++pairs[static_cast<std::size_t>(u[i] * 32) * 32 + static_cast<std::size_t>(u[i - 1] * 32)];
      for (std::size_t lag = 1; lag < 5; ++lag)
        if (i >= lag) serial[lag] += (u[i] - 0.5) * (u[i - lag] - 0.5) * 12;
    }
    EXPECT_LT(std::fabs(chi_square_deviation(counts)), 4) << name(t);
    EXPECT_LT(std::fabs(chi_square_deviation(pairs)), 4) << name(t);
    for (std::size_t lag = 1; lag < 5; ++lag)
      EXPECT_LT(std::fabs(serial[lag]) / std::sqrt(double{kMany}), 4) << lag;
  }
}

TEST(Uniform, NeverReachesItsUpperBound) {
  for (DType t : {DType::Float16, DType::BFloat16, DType::Float32, DType::Float64}) {
    EXPECT_LT(max(random::uniform(Key(2), {kMany}, t)).item<double>(), 1) << name(t);
    for (auto [low, high] : {std::pair{1.0, 2.0}, {100.0, 101.0}, {-1.0, 0.0}, {0.0, 1e-3}, {-1e4, 1e4}}) {
      const Tensor u = random::uniform(Key(2), {kMany}, low, high, t);
      EXPECT_LT(max(u).item<double>(), high) << name(t);
      EXPECT_GE(min(u).item<double>(), low - std::fabs(low) * 4e-3) << name(t);
    }
  }
  // Every bit that a float16 or bfloat16 draw has is used.
  EXPECT_EQ(max(random::uniform(Key(2), {kMany}, DType::Float16)).item<double>(), 1 - 1.0 / 2048);
  EXPECT_EQ(max(random::uniform(Key(2), {kMany}, DType::BFloat16)).item<double>(), 1 - 1.0 / 256);
}

TEST(Normal, IsNormal) {
  for (DType t : {DType::Float32, DType::Float64}) {
    const std::vector<double> z = doubles(random::normal(Key(3), {kMany}, t));
    EXPECT_LT(kolmogorov(z, phi), 1.95) << name(t);
    double moments[5] = {};
    for (double v : z)
      for (int k = 1; k < 5; ++k) moments[k] += std::pow(v, k) / kMany;
    const double root = std::sqrt(double{kMany});
    EXPECT_LT(std::fabs(moments[1]) * root, 4);
    EXPECT_LT(std::fabs(moments[2] - 1) * root / std::sqrt(2.0), 4);
    EXPECT_LT(std::fabs(moments[3]) * root / std::sqrt(15.0), 4);
    EXPECT_LT(std::fabs(moments[4] - 3) * root / std::sqrt(96.0), 4);
  }
}

TEST(Normal, TailsHaveTheirShare) {
  const Tensor z = random::normal(Key(4), {16 * kMany});
  eval({z});
  for (double limit : {3.0, 4.0, 5.0}) {
    const double expected = 16.0 * kMany * phi(-limit);
    for (const Tensor& outside : {z > limit, z < -limit}) {
      const double found = sum(outside).item<double>();
      EXPECT_LT(std::fabs(found - expected), 4 * std::sqrt(expected) + 1) << limit;
    }
  }
  EXPECT_TRUE(all(isfinite(z)).item<bool>());
}

TEST(Normal, TakesMeanAndDeviation) {
  const Tensor z = random::normal(Key(4), {kMany}, 5.0, 2.0);
  EXPECT_NEAR(mean(z).item<double>(), 5, 0.01);
  EXPECT_NEAR(kiln::std(z).item<double>(), 2, 0.01);
}

TEST(Exponential, IsExponential) {
  for (DType t : {DType::Float32, DType::Float64}) {
    const std::vector<double> e = doubles(random::exponential(Key(5), {kMany}, t));
    EXPECT_LT(kolmogorov(e, [](double x) { return -std::expm1(-x); }), 1.95) << name(t);
    EXPECT_GE(*std::min_element(e.begin(), e.end()), 0);
    EXPECT_FALSE(std::signbit(*std::min_element(e.begin(), e.end())));
  }
}

TEST(Bernoulli, HasItsProbability) {
  for (double p : {0.0, 0.01, 0.5, 0.9, 1.0}) {
    const double found = mean(random::bernoulli(Key(6), {kMany}, p).astype(DType::Float64)).item<double>();
    EXPECT_LE(std::fabs(found - p), 4 * std::sqrt(p * (1 - p) / kMany)) << p;
  }
  const Tensor p = Tensor({0.1f, 0.7f});
  const Tensor each = mean(random::bernoulli(Key(6), {kMany, 2}, p).astype(DType::Float32), 0);
  testing::expect_near(each, {0.1, 0.7}, 3e-3);
}

TEST(Randint, IsUniformOverItsRange) {
  for (auto [low, high] : {std::pair<std::int64_t, std::int64_t>{0, 10}, {-7, 13}, {0, 1000}, {5, 6}}) {
    const std::vector<std::int64_t> drawn =
        random::randint(Key(7), {kMany}, low, high).to_vector<std::int64_t>();
    std::vector<double> counts(static_cast<std::size_t>(high - low));
    for (std::int64_t v : drawn) {
      ASSERT_TRUE(v >= low && v < high);
      ++counts[static_cast<std::size_t>(v - low)];
    }
    if (counts.size() > 1) EXPECT_LT(std::fabs(chi_square_deviation(counts)), 4) << low << " " << high;
  }
}

TEST(Randint, CoversWideAndNarrowRanges) {
  // Three quarters of a power of two: taking bits modulo the range would show.
  for (std::int64_t span : {std::int64_t{3} << 30, std::int64_t{3} << 61}) {
    const Tensor v = random::randint(Key(8), {kMany}, 0, span);
    const double third = mean((v < span / 3).astype(DType::Float64)).item<double>();
    EXPECT_NEAR(third, 1.0 / 3, 4 * std::sqrt(2.0 / 9 / kMany)) << span;
    EXPECT_GE(min(v).item<std::int64_t>(), 0);
    EXPECT_LT(max(v).item<std::int64_t>(), span);
  }
  const Tensor bytes = random::randint(Key(8), {kMany}, -128, 128, DType::Int8);
  EXPECT_EQ(min(bytes).item<int>(), -128);
  EXPECT_EQ(max(bytes).item<int>(), 127);
  const Tensor whole =
      random::randint(Key(8), {kMany}, INT64_MIN, INT64_MAX).astype(DType::Float64) * 0x1p-63;
  EXPECT_NEAR(mean(whole).item<double>(), 0, 4 / std::sqrt(3.0 * kMany));
  EXPECT_NEAR(var(whole).item<double>(), 1.0 / 3, 2e-3);
}

TEST(Permutation, IsOneAndIsUniform) {
  const std::vector<std::int64_t> p = random::permutation(Key(9), 100003).to_vector<std::int64_t>();
  std::vector<std::int64_t> sorted = p;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < sorted.size(); ++i) ASSERT_EQ(sorted[i], static_cast<std::int64_t>(i));
  EXPECT_NE(p, sorted);
  std::vector<double> counts(24);
  for (std::uint64_t k = 0; k < 2400; ++k) {
    const std::vector<std::int64_t> four =
        random::permutation(random::fold_in(Key(10), k), 4).to_vector<std::int64_t>();
    std::size_t rank = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      rank *= 4 - i;
      for (std::size_t j = i + 1; j < 4; ++j) rank += four[j] < four[i];
    }
    ++counts[rank];
  }
  EXPECT_LT(std::fabs(chi_square_deviation(counts)), 4);
  const Tensor x = testing::counting({5, 3});
  const Tensor shuffled = random::permutation(Key(11), x);
  expect_equal(sort(shuffled, 0), {5, 3}, x.to_vector<float>());
  EXPECT_EQ(random::permutation(Key(11), 0).numel(), 0);
}

TEST(Random, EmptyAndRankZeroDraws) {
  EXPECT_EQ(random::uniform(Key(1), {0, 3}).shape().str(), "(0, 3)");
  EXPECT_EQ(random::normal(Key(1), {0}).numel(), 0);
  EXPECT_EQ(random::uniform(Key(1), {}).rank(), 0);
  EXPECT_GE(random::uniform(Key(1), {}).item<float>(), 0);
}

// ---- the quantile ----

TEST(Ndtri, HasItsValuesAndItsTails) {
  in_every_mode([] {
    testing::expect_near(ndtri(Tensor({0.0f, 1e-30f, 0.001f, 0.5f, 0.975f, 1.0f, -0.1f, 1.1f, NAN})),
                         {-HUGE_VAL, -11.4640245, -3.0902323, 0, 1.959963985, HUGE_VAL, NAN, NAN, NAN}, 3e-7);
    testing::expect_near(ndtri(Tensor({1e-300, 1e-20, 0.4, 0.5 + 1e-12, 1 - 1e-12})),
                         {-37.0470962993612, -9.262340089798409, -0.2533471031357997, 2.5065728237018607e-12,
                          7.0344869100478356},
                         1e-14);
  });
}

TEST(MultiplyHigh, IsTheUpperHalf) {
  in_every_mode([] {
    const std::uint64_t top = ~std::uint64_t{0};
    expect_equal<std::uint64_t>(multiply_high(Tensor({top, top, std::uint64_t{1} << 32}),
                                              Tensor({top, std::uint64_t{2}, std::uint64_t{1} << 33})),
                                {top - 1, 1, 2});
    expect_equal<std::int64_t>(multiply_high(Tensor({std::int64_t{-1}, INT64_MIN, INT64_MIN}),
                                             Tensor({std::int64_t{1}, INT64_MIN, std::int64_t{2}})),
                               {-1, std::int64_t{1} << 62, -1});
    expect_equal<std::int8_t>(multiply_high(Tensor({std::int8_t{-128}, std::int8_t{100}}),
                                            Tensor({std::int8_t{-128}, std::int8_t{100}})),
                              {64, 39});
  });
}

// ---- errors ----

TEST(Random, ErrorsSayWhatIsWrong) {
  expect_user_error([] { random::uniform(Key(1), {2}, DType::Int32); },
                    "[uniform] draws floating-point numbers, not int32");
  expect_user_error([] { random::normal(Key(1), {-2}); }, "[normal] negative extent in shape (-2,)");
  expect_user_error([] { random::uniform(Key(1), {2}, 3, 3); },
                    "[uniform] float32 has no numbers from 3 to below 3");
  expect_user_error([] { random::uniform(Key(1), {2}, 0, HUGE_VAL); },
                    "[uniform] float32 has no numbers from 0 to below inf");
  expect_user_error([] { random::randint(Key(1), {2}, 0, 300, DType::UInt8); },
                    "[randint] uint8 has no numbers from 0 to below 300");
  expect_user_error([] { random::randint(Key(1), {2}, 4, 4); },
                    "[randint] int64 has no numbers from 4 to below 4");
  expect_user_error([] { random::randint(Key(1), {2}, 0, 3, DType::Float32); },
                    "[randint] draws integers, not float32");
  expect_user_error([] { random::bits(Key(1), {2}, DType::Int32); },
                    "[bits] gives uint32 or uint64, not int32");
  expect_user_error([] { random::bernoulli(Key(1), {2}, Tensor({0.1f, 0.2f, 0.3f})); },
                    "[bernoulli] probabilities float32 (3,) do not broadcast to (2,)");
  expect_user_error([] { random::bernoulli(Key(1), {1}, Tensor({0.1f, 0.2f})); },
                    "[bernoulli] probabilities float32 (2,) do not broadcast to (1,)");
  expect_user_error([] { random::permutation(Key(1), -1); }, "[permutation] of -1 elements");
  expect_user_error([] { philox(Tensor({1.0f}), 3); },
                    "[philox] does not take float32 operands: float32 (1,) and 3");
}

TEST(Random, RangesAreThoseOfTheDtype) {
  in_every_mode([] {
    const Tensor wide = random::uniform(Key(5), {4096}, -2e38, 2e38);
    EXPECT_TRUE(all(isfinite(wide)).item<bool>());
    EXPECT_LT(min(wide).item<float>(), -1.9e38f);
    EXPECT_GT(max(wide).item<float>(), 1.9e38f);
    EXPECT_NEAR(mean(wide / 2e38).item<float>(), 0, 0.05);
    EXPECT_TRUE(all(isfinite(random::uniform(Key(5), {100}, -1e308, 1e308, DType::Float64))).item<bool>());
    EXPECT_TRUE(all(isfinite(random::uniform(Key(5), {100}, -65504, 65504, DType::Float16))).item<bool>());
    // 0.7f is less than 0.7, and still no value of [0, 0.7).
    EXPECT_LT(max(random::uniform(Key(5), {100}, std::nextafter(0.7f, 0.0f), 0.7)).item<float>(), 0.7f);
  });
  expect_user_error([] { random::uniform(Key(1), {2}, -1e5, 1e5, DType::Float16); },
                    "[uniform] float16 has no numbers from -100000 to below 100000");
  expect_user_error([] { random::uniform(Key(1), {2}, 0, 1e39); },
                    "[uniform] float32 has no numbers from 0 to below 1e+39");
  expect_user_error([] { random::uniform(Key(1), {2}, 1.0, 1.0 + 1e-12); },
                    "[uniform] float32 has no numbers from 1 to below 1");
  expect_user_error([] { random::uniform(Key(1), {2}, 0.0, -NAN); },
                    "[uniform] float32 has no numbers from 0 to below nan");
}

TEST(Random, ParametersAreChecked) {
  expect_user_error([] { random::normal(Key(1), {2}, 0, -1.5); }, "[normal] a deviation of -1.5");
  expect_user_error([] { random::normal(Key(1), {2}, 0, NAN); }, "[normal] a deviation of nan");
  expect_equal<float>(random::normal(Key(1), {2}, 3, 0), {3, 3});
  expect_user_error([] { random::bernoulli(Key(1), {2}, 1.5); }, "[bernoulli] a probability of 1.5");
  expect_user_error([] { random::bernoulli(Key(1), {2}, -0.5); }, "[bernoulli] a probability of -0.5");
  expect_user_error([] { random::bernoulli(Key(1), {2}, NAN); }, "[bernoulli] a probability of nan");
  expect_equal<bool>(random::bernoulli(Key(1), {2}, 1), {true, true});
  expect_equal<bool>(random::bernoulli(Key(1), {2}, 0), {false, false});
}

}  // namespace
}  // namespace kiln
