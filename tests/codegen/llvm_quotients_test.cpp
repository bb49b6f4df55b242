// Quotients whose divisor is found outside the loop: of a row, on all lanes alike, or of a column, each
// lane's own. They are those of the divider, or its neighbours, on every instruction set; special values are
// exact.
#include "codegen/on_target.h"
#include "needs_cpu.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace kiln {
namespace {

using testing::ConfigScope;

constexpr float kInf = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();

std::int64_t place(float x) {
  const auto bits = std::bit_cast<std::int32_t>(x);
  return bits < 0 ? -static_cast<std::int64_t>(bits & 0x7fffffff) : bits;
}

/// Numbers of all kinds, from a place of their own on.
float number(std::int64_t i) {
  constexpr float kSpecial[] = {0.0f,      -0.0f,        kInf,      -kInf,   kNaN,
                                0x1p-149f, -0x1.8p-130f, 0x1p-126f, 3.4e38f, -3.4e38f,
                                0x1p-101f, 0x1p101f,     -0x1p-99f, 0x1p99f, 0x1.8p-24f,
                                0x1p-63f,  -0x1.2p64f,   1.0f,      -1.0f,   127.0f};
  const auto bits = static_cast<std::uint32_t>(i * 2654435761u) ^ static_cast<std::uint32_t>(i >> 3);
  if (i % 5 == 0) return kSpecial[static_cast<std::size_t>(i / 5) % std::size(kSpecial)];
  return i % 5 == 1 ? std::bit_cast<float>(bits) : static_cast<float>(bits % 2001) / 7 - 100;
}

/// x over the greatest of each row, or column, of y, which are equal along it.
void check(std::int64_t rows, std::int64_t columns, bool of_columns, const std::string& where) {
  std::vector<float> numbers, divisors;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) {
      numbers.push_back(number(7 * r + 3 * c));
      divisors.push_back(number(of_columns ? c + 2 : r + 2));
    }
  const Tensor x = Tensor::from(numbers).reshape({rows, columns}).eval(),
               y = Tensor::from(divisors).reshape({rows, columns}).eval();
  const std::vector<float> got = (x / max(y, {of_columns ? 0 : 1}, true)).to_vector<float>();
  for (std::size_t i = 0; i < got.size(); ++i) {
    const float want = numbers[i] / divisors[i];
    const std::string what = where + ": " + std::to_string(numbers[i]) + " / " + std::to_string(divisors[i]);
    ASSERT_EQ(std::isnan(got[i]), std::isnan(want)) << what;
    if (std::isnan(want)) continue;
    ASSERT_LE(std::abs(place(got[i]) - place(want)), 1) << what << " is " << got[i] << ", not " << want;
    ASSERT_EQ(std::signbit(got[i]), std::signbit(want)) << what;
  }
}

TEST(LlvmQuotients, ByWhatIsFoundOutsideTheLoop) {
  KILN_NEEDS_CPU();
  for (const std::string& target : testing::different_cpu_targets()) {
    const ConfigScope scope(target);
    for (const bool of_columns : {false, true})
      for (const auto& [rows, columns] :
           {std::pair{200, 5}, {300, 16}, {70, 33}, {40, 257}, {33, 1000}, {1000, 3}, {64, 64}})
        check(rows, columns, of_columns,
              target + (of_columns ? " columns of " : " rows of ") + std::to_string(rows) + "x" +
                  std::to_string(columns));
  }
}

/// An exact quotient stays exact: round() of it is what the divider's gives, ties too.
TEST(LlvmQuotients, ExactOnesStayExact) {
  KILN_NEEDS_CPU();
  for (const std::string& target : testing::different_cpu_targets()) {
    const ConfigScope scope(target);
    for (const std::int64_t columns : {16, 100, 1024}) {
      const Tensor halves =
          arange(0, 40 * columns, 1, DType::Int32).reshape({40, columns}).astype(DType::Float32) / 2;
      const Tensor scale = (arange(0, 40, 1, DType::Int32).reshape({40, 1}) * 2 + 3).astype(DType::Float32);
      const Tensor x = (halves * scale).eval(), rows = (scale + zeros({40, columns})).eval();
      const Tensor got = round(x / max(rows, {1}, true)).eval();
      EXPECT_TRUE(array_equal(got, round(halves))) << target << " " << columns;
    }
  }
}

}  // namespace
}  // namespace kiln
