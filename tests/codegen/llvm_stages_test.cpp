// Long chains of functions, which are computed in stages: values are those of the functions one by one on
// every instruction set, at every length of the last piece and the last vector.
#include "codegen/on_target.h"
#include "needs_cpu.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

using testing::ConfigScope;

using Step = Tensor (*)(const Tensor&);

constexpr Step kSteps[] = {
    [](const Tensor& x) { return silu(x); },    [](const Tensor& x) { return exp(x); },
    [](const Tensor& x) { return tanh(x); },    [](const Tensor& x) { return gelu(x); },
    [](const Tensor& x) { return sigmoid(x); }, [](const Tensor& x) { return silu(x); }};

Tensor chain(Tensor x, bool one_by_one) {
  for (const Step step : kSteps) {
    x = step(x);
    if (one_by_one) x.eval();
  }
  return x;
}

TEST(LlvmStages, ChainsAreTheirFunctionsOneByOne) {
  KILN_NEEDS_CPU();
  for (const std::string& target : testing::different_cpu_targets()) {
    const ConfigScope scope(target);
    for (const DType dtype : {DType::Float16, DType::BFloat16, DType::Float32, DType::Float64})
      for (const std::int64_t n : {1, 7, 31, 511, 513, 1023, 1024, 1025, 5000}) {
        const Tensor x = ((arange(0, n, 1, DType::Int64) * 37 % 101 - 50) / 8).astype(dtype).eval();
        const double tolerance = dtype == DType::Float64 ? 1e-14 : dtype == DType::Float32 ? 1e-6 : 1e-2;
        EXPECT_TRUE(allclose(chain(x, false), chain(x, true), tolerance, tolerance))
            << target << " " << name(dtype) << " " << n;
      }
  }
}

/// A second result and operands that are read late keep a chain from having waists, or are made in its last
/// stage.
TEST(LlvmStages, WithOtherOperandsAndResults) {
  KILN_NEEDS_CPU();
  for (const std::string& target : testing::different_cpu_targets()) {
    const ConfigScope scope(target);
    for (const std::int64_t n : {3, 1024, 3001}) {
      const Tensor x = ((arange(0, n, 1, DType::Int64) * 37 % 101 - 50) / 8).astype(DType::Float32).eval();
      const Tensor y = (x * 0.5 + 1).eval();
      const auto results = [&](bool one_by_one) {
        const Tensor first = chain(x, one_by_one), last = first * y + x;
        const Tensor other = x + chain(first, one_by_one);
        eval({first, last, other});
        return std::vector<Tensor>{first, last, other};
      };
      const std::vector<Tensor> got = results(false), want = results(true);
      for (std::size_t k = 0; k < got.size(); ++k)
        EXPECT_TRUE(allclose(got[k], want[k], 1e-6, 1e-6)) << target << " " << n << ", " << k;
    }
  }
}

/// Rows with an operand that all of them share: the loop over rows is inside that over lanes, and goes in
/// stages.
TEST(LlvmStages, OfRowsInsideTheLanes) {
  KILN_NEEDS_CPU();
  for (const std::string& target : testing::different_cpu_targets()) {
    const ConfigScope scope(target);
    for (const DType dtype : {DType::BFloat16, DType::Float32, DType::Float64})
      for (const std::int64_t row : {2, 19, 30, 127}) {
        const std::int64_t rows = 100000 / row;
        const Tensor x = ((arange(0, rows * row, 1, DType::Int64) * 37 % 101 - 50) / 8)
                             .astype(dtype)
                             .reshape({rows, row})
                             .eval();
        const Tensor bias = (arange(0, row, 1, DType::Int64) / 16).astype(dtype).eval();
        const double tolerance = dtype == DType::Float64 ? 1e-14 : dtype == DType::Float32 ? 1e-6 : 2e-2;
        const Tensor sum = x + bias;
        const Tensor got = chain(sum, false);
        got.eval();
        EXPECT_TRUE(allclose(got, chain((x + bias).eval(), true), tolerance, tolerance))
            << target << " " << name(dtype) << " " << row;
      }
  }
}

}  // namespace
}  // namespace kiln
