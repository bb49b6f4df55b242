// logsumexp of Float64, whose exponentials are below e^0 and need no function of all numbers: within a few
// units of the exact values, along rows and columns, with infinities and NaN.
#include "codegen/llvm_ir_text.h"
#include "device/cpu/target.h"
#include "needs_cpu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace kiln {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

void check(std::vector<double> numbers, std::int64_t rows, const std::string& where) {
  const auto columns = static_cast<std::int64_t>(numbers.size()) / rows;
  const Tensor x = Tensor::from(numbers).reshape({rows, columns}).eval();
  const auto expect = [&](const std::vector<double>& got, std::int64_t length, std::int64_t step,
                          std::int64_t along) {
    for (std::size_t i = 0; i < got.size(); ++i) {
      long double most = -HUGE_VALL, sum = 0;
      const auto at = [&](std::int64_t k) {
        return numbers[static_cast<std::size_t>(static_cast<std::int64_t>(i) * step + k * along)];
      };
      for (std::int64_t k = 0; k < length; ++k) most = std::fmax(most, static_cast<long double>(at(k)));
      for (std::int64_t k = 0; k < length; ++k) sum += std::exp(static_cast<long double>(at(k)) - most);
      const double want = static_cast<double>(std::isinf(most) ? most : most + std::log(sum));
      if (std::isinf(want))
        EXPECT_EQ(got[i], want) << where << " " << i;
      else
        EXPECT_NEAR(got[i], want, 1e-15 * std::fmax(1, std::abs(want))) << where << " " << i;
    }
  };
  expect(logsumexp(x, 1).to_vector<double>(), columns, columns, 1);
  expect(logsumexp(x, 0).to_vector<double>(), rows, 1, columns);
}

TEST(RelativeSums, Float64IsExactToAFewUnits) {
  KILN_NEEDS_CPU();
  for (const auto& [rows, columns] : {std::pair{3, 1000}, {200, 70}, {5000, 10}, {37, 4096}})
    for (const double scale : {0.5, 30.0, 900.0}) {
      std::vector<double> x;
      for (int i = 0; i < rows * columns; ++i) x.push_back(scale * std::sin(i * 1.7) + 0.25 * scale);
      check(x, rows, std::to_string(rows) + " rows, numbers up to " + std::to_string(scale));
      for (std::size_t i = 0; i < x.size(); i += 777) x[i] = -kInf;
      x[0] = kInf;
      check(x, rows, std::to_string(rows) + " rows with infinities");
    }
}

TEST(RelativeSums, NaNStaysInItsRow) {
  KILN_NEEDS_CPU();
  std::vector<double> x(4 * 500, 1.0);
  x[700] = std::numeric_limits<double>::quiet_NaN();
  x[1100] = kInf;
  const std::vector<double> got = logsumexp(Tensor::from(x).reshape({4, 500}).eval(), 1).to_vector<double>();
  EXPECT_NEAR(got[0], 1 + std::log(500.0), 1e-15 * 8);
  EXPECT_TRUE(std::isnan(got[1]));
  EXPECT_EQ(got[2], kInf);
}

/// The function of all numbers has 2^n in two factors, for results beyond the normal numbers.
TEST(RelativeSums, Float64HasOneFactor) {
  KILN_NEEDS_CPU();
  if (!cpu::host_instruction_sets().avx2) GTEST_SKIP() << "the function of all numbers is the library's";
  const Tensor x = (arange(0, 4000, 1, DType::Int64) % 7).astype(DType::Float64).reshape({40, 100}).eval();
  EXPECT_EQ(testing::count_of(testing::llvm_ir_of(logsumexp(x, 1)), "0x5FF0000000000000"), 0);
}

}  // namespace
}  // namespace kiln
