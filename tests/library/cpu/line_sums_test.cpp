// Sums of lines times vectors, on every instruction set of the host, against the order that they promise.
#include "library/cpu/line_sums.h"

#include <kiln/dtype.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace kiln::cpu {
namespace {

constexpr SumLevel kLevels[] = {SumLevel::Base, SumLevel::Avx2, SumLevel::Avx512};

template <class T>
class LineSumsOf : public ::testing::Test {};
using Floats = ::testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(LineSumsOf, Floats);

/// Small integers: their sums are exact in every order.
template <class T>
std::vector<T> numbers(std::int64_t n, int seed) {
  std::vector<T> out;
  for (std::int64_t i = 0; i < n; ++i)
    out.push_back(static_cast<T>(static_cast<float>((i * 7 + seed) % 17 - 8)));
  return out;
}

TYPED_TEST(LineSumsOf, EveryLevelAndNumberOfVectors) {
  using T = TypeParam;
  using C = typename ComputeOf<T>::type;
  for (const std::int64_t k : {1, 2, 15, 16, 17, 31, 32, 64, 200}) {
    const std::int64_t line = k + 3, x_row = k + 5;
    // just large enough: what lies behind the last element must not be read into a sum
    std::vector<T> lines = numbers<T>((kLines - 1) * line + k, 1);
    const std::vector<C> x = numbers<C>((kMostVectors - 1) * x_row + k, 4);
    for (int i = 0; i + 1 < kLines; ++i)
      for (std::int64_t p = k; p < line; ++p)
        lines[static_cast<std::size_t>(i * line + p)] =
            static_cast<T>(std::numeric_limits<float>::quiet_NaN());
    for (const SumLevel level : kLevels) {
      if (level > best_sum_level()) continue;
      for (int vectors = 1; vectors <= kMostVectors; ++vectors) {
        const LineSums<T> sums = line_sums<T>(vectors, level);
        if (!sums) {
          ASSERT_GT(vectors, 1);
          continue;
        }
        for (const bool lines_adjoin : {false, true}) {
          std::vector<C> out(40, C{99});
          const std::int64_t c_line = lines_adjoin ? 1 : 9, c_vector = lines_adjoin ? 9 : 2;
          sums(k, lines.data(), line, x.data(), x_row, out.data(), c_line, c_vector);
          std::vector<C> expected(40, C{99});
          for (int i = 0; i < kLines; ++i)
            for (int j = 0; j < vectors; ++j) {
              C& sum = expected[static_cast<std::size_t>(i * c_line + j * c_vector)] = 0;
              for (std::int64_t p = 0; p < k; ++p)
                sum += static_cast<C>(lines[static_cast<std::size_t>(i * line + p)]) *
                       x[static_cast<std::size_t>(j * x_row + p)];
            }
          ASSERT_EQ(out, expected) << "k " << k << ", level " << static_cast<int>(level) << ", vectors "
                                   << vectors;
        }
      }
    }
  }
}

/// A sum has the same bits whatever is computed beside it.
TYPED_TEST(LineSumsOf, BitsDoNotDependOnTheVectorsBeside) {
  using T = TypeParam;
  using C = typename ComputeOf<T>::type;
  constexpr std::int64_t kLength = 77;
  std::vector<T> lines;
  std::vector<C> x;
  for (std::int64_t i = 0; i < kLines * kLength; ++i) {
    lines.push_back(static_cast<T>(static_cast<float>(std::sin(static_cast<double>(i)))));
    x.push_back(static_cast<C>(std::cos(static_cast<double>(i) * 0.7)));
  }
  for (const SumLevel level : kLevels) {
    if (level > best_sum_level()) continue;
    C alone[kMostVectors][kLines];
    for (int j = 0; j < kMostVectors; ++j)
      line_sums<T>(1, level)(kLength, lines.data(), kLength, x.data() + j * kLength, kLength, alone[j], 1,
                             kLines);
    for (int vectors = 2; vectors <= kMostVectors; ++vectors) {
      const LineSums<T> sums = line_sums<T>(vectors, level);
      if (!sums) continue;
      C together[kMostVectors][kLines];
      sums(kLength, lines.data(), kLength, x.data(), kLength, together[0], 1, kLines);
      for (int j = 0; j < vectors; ++j)
        for (int i = 0; i < kLines; ++i) ASSERT_EQ(together[j][i], alone[j][i]) << vectors << " vectors";
    }
    // one line four times
    C same[kLines];
    line_sums<T>(1, level)(kLength, lines.data(), 0, x.data(), kLength, same, 1, kLines);
    for (const C sum : same) ASSERT_EQ(sum, alone[0][0]);
  }
}

TEST(WidenRuns, HalvesOfEveryLength) {
  for (std::int64_t n = 1; n <= 70; ++n) {
    const std::int64_t step = n + 3, to_step = n + 2;
    std::vector<float16> halves;
    std::vector<bfloat16> bfloats;
    for (std::int64_t i = 0; i < 3 * step; ++i) {
      halves.push_back(static_cast<float>(i) / 8);
      bfloats.push_back(static_cast<float>(i % 256));
    }
    std::vector<float> a(static_cast<std::size_t>(3 * to_step), -1.0f), b = a, expected_a = a, expected_b = a;
    for (std::int64_t r = 0; r < 3; ++r)
      for (std::int64_t i = 0; i < n; ++i) {
        const auto to = static_cast<std::size_t>(r * to_step + i),
                   from = static_cast<std::size_t>(r * step + i);
        expected_a[to] = halves[from];
        expected_b[to] = bfloats[from];
      }
    widen_runs(halves.data(), step, 3, n, a.data(), to_step);
    widen_runs(bfloats.data(), step, 3, n, b.data(), to_step);
    ASSERT_EQ(a, expected_a) << n;
    ASSERT_EQ(b, expected_b) << n;
  }
}

}  // namespace
}  // namespace kiln::cpu
