// Square roots beside quotients: multiplied out where both would wait for the divider, and the rounded roots
// all the same.
#include "codegen/llvm_ir_text.h"
#include "codegen/on_target.h"
#include "needs_cpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace kiln {
namespace {

using testing::ConfigScope;

bool has_avx512() {
  const auto targets = testing::cpu_targets();
  return std::ranges::find(targets, "avx512") != targets.end();
}

/// Of one kernel, which has the quotient, too.
std::vector<float> roots_of(const std::vector<float>& numbers) {
  const Tensor x = Tensor::from(numbers).eval();
  const Tensor roots = sqrt(x), quotients = x / (roots + 1.0f);
  const Statistics before = statistics();
  eval(roots, quotients);
  EXPECT_EQ(statistics().launches - before.launches, 1);
  return roots.to_vector<float>();
}

TEST(LlvmRoots, OfEveryMantissaAreRounded) {
  KILN_NEEDS_CPU();
  constexpr std::uint32_t kOne = 0x3f800000, kCount = 1 << 24, kPart = 1 << 22;  // both parities of exponents
  for (std::uint32_t first = kOne; first < kOne + kCount; first += kPart) {
    std::vector<float> numbers;
    for (std::uint32_t i = 0; i < kPart; ++i) numbers.push_back(std::bit_cast<float>(first + i));
    const std::vector<float> roots = roots_of(numbers);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < roots.size(); ++i) wrong += roots[i] != std::sqrt(numbers[i]);
    EXPECT_EQ(wrong, 0u) << "from " << numbers[0];
  }
}

TEST(LlvmRoots, OfSpecialValuesAndAllExponents) {
  KILN_NEEDS_CPU();
  constexpr float kInf = std::numeric_limits<float>::infinity(),
                  kNaN = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> numbers = {0.0f,       -0.0f,     kInf,      -kInf,     kNaN,        -1.0f,
                                -0x1p-149f, 0x1p-149f, 3e38f,     0x1p-126f, 0x1.8p-130f, 0x1p-110f,
                                -3e38f,     16.0f,     0x1p-140f, 2.25f};
  for (std::uint32_t bits = 1; bits < 0x7f800000; bits += 0x12345)
    numbers.push_back(std::bit_cast<float>(bits));
  for (const std::string& target : testing::cpu_targets()) {
    const ConfigScope scope(target);
    const std::vector<float> roots = roots_of(numbers);
    for (std::size_t i = 0; i < roots.size(); ++i) {
      const float want = std::sqrt(numbers[i]);
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(roots[i])) << numbers[i];
        continue;
      }
      EXPECT_EQ(std::signbit(roots[i]), std::signbit(want)) << numbers[i];
      const auto off = std::bit_cast<std::int32_t>(roots[i]) - std::bit_cast<std::int32_t>(want);
      EXPECT_LE(std::abs(off), numbers[i] < 0x1p-110f ? 1 : 0) << numbers[i] << " on " << target;
    }
  }
}

TEST(LlvmRoots, StayOnTheDividerWhereNothingElseWantsIt) {
  KILN_NEEDS_CPU();
  if (!has_avx512()) GTEST_SKIP() << "no such registers";
  const Tensor x = arange(1, 5000, 1, DType::Int32).astype(DType::Float32).eval();
  const auto multiplied = [](const Tensor& t, const char* target) {
    return testing::count_of(testing::llvm_ir_of(t, target), "rsqrt14") > 0;
  };
  const auto step = [&] { return x / (sqrt(x) + 1.0f); };
  EXPECT_TRUE(multiplied(step(), "avx512"));
  EXPECT_FALSE(multiplied(step(), "avx2"));
  EXPECT_FALSE(multiplied(sqrt(x) + 1.0f, "avx512"));
  EXPECT_FALSE(multiplied(sqrt(x) / 3.0f, "avx512"));  // a quotient without the divider
  EXPECT_FALSE(multiplied((x.astype(DType::Float64) / sqrt(x.astype(DType::Float64))), "avx512"));
  for (const bool strict : {true, false}) {
    Config c = config();
    c.strict = strict;
    c.deterministic = !strict;
    const ScopedConfig scope(c);
    EXPECT_FALSE(multiplied(step(), "avx512"));
  }
}

}  // namespace
}  // namespace kiln
