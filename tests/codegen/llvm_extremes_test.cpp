// The greatest and the least of several halves are found as integers: what the interpreter gives, with zeros
// of both signs, infinities and NaN among them, on every instruction set.
#include "codegen/llvm_ir_text.h"
#include "codegen/on_target.h"
#include "needs_cpu.h"
#include "support/check.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace kiln {
namespace {

using testing::count_of;
using testing::llvm_ir_of;

Tensor mixed(DType dtype, std::int64_t rows, std::int64_t columns, bool zeros, double nan) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto few = static_cast<float>(nan);
  std::vector<float> values;
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    const std::int64_t k = i * 37 % 1009;
    const float number = static_cast<float>(k - 500) / 16;
    values.push_back(k == 7     ? few
                     : k == 11  ? kInfinity
                     : k == 13  ? -kInfinity
                     : k == 500 ? 1.0f
                     : !zeros   ? number
                     : k % 3    ? 0.0f
                                : -0.0f);
  }
  const Tensor x = Tensor(values, {rows, columns}).astype(dtype);
  eval({x});
  return x;
}

Tensor pooled(const Tensor& x, bool greatest) {
  const std::int64_t count = x.shape()[1] - 2;
  Tensor y = x(all(), range(0, count));
  for (std::int64_t k = 1; k < 3; ++k) {
    const Tensor next = x(all(), range(k, k + count));
    y = greatest ? maximum(y, next) : minimum(next, y);
  }
  return y;
}

TEST(LlvmExtremes, OfHalvesOnEveryTarget) {
  KILN_NEEDS_CPU();
  for (const DType dtype : {DType::BFloat16, DType::Float16})
    for (const std::int64_t columns : {9, 40, 700})
      for (const bool zeros : {false, true}) {
        constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
        const Tensor x = mixed(dtype, 100, columns, zeros, kNan),
                     y = mixed(dtype, 100, columns, zeros, -kNan);
        testing::expect_as_interpreted(cat(name(dtype), " rows of ", columns), [&] {
          return std::vector<Tensor>{pooled(x, true), pooled(x, false), isnan(pooled(y, true)),
                                     isnan(pooled(y, false))};
        });
      }
}

TEST(LlvmExtremes, ManyHalvesAreComparedAsIntegers) {
  KILN_NEEDS_CPU();
  KILN_NEEDS_COMPILER();
  const Tensor x = mixed(DType::BFloat16, 100, 700, false, 0);
  EXPECT_GE(count_of(llvm_ir_of(pooled(x, true)), R"(@llvm\.smax\.v\d+i16)"), 2);
  EXPECT_EQ(count_of(llvm_ir_of(maximum(x, x * 2)), R"(@llvm\.smax\.v\d+i16)"), 0);
}

}  // namespace
}  // namespace kiln
