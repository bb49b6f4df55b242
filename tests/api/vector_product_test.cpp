// Products with one or two rows or columns, on a CPU one kernel with the maps before and behind them.
#include "counted.h"
#include "modes.h"

#include <kiln/nn.h>

#include <cmath>
#include <limits>
#include <vector>

namespace kiln {
namespace {

using test::data;

/// The values of f's result, the kernels and the library calls that it took.
struct Outcome {
  std::vector<double> values;
  std::uint64_t launches, calls;
};
template <class F>
Outcome run(F f) {
  Tensor y;
  const auto c = test::count([&] { y = f().eval(); });
  return {astype(y, DType::Float64).eval().to_vector<double>(), c.launches, c.library_calls};
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], tolerance * (1 + std::abs(want[i]))) << "element " << i;
}

Tensor wide(const Tensor& x) { return astype(x, DType::Float64).eval(); }

TEST(VectorProduct, HalvesInEitherLayoutWithTheirNeighbours) {
  for (const DType dtype : {DType::BFloat16, DType::Float16})
    for (const bool turned : {false, true})
      for (const auto& [k, n] :
           {std::pair<std::int64_t, std::int64_t>{300, 77}, {64, 1000}, {1, 9}, {5000, 1}}) {
        const Shape extents{k, n};
        SCOPED_TRACE(std::string(name(dtype)) + (turned ? ", turned, " : ", ") + extents.str());
        const Tensor x = data({1, k}, dtype), b = data({n}, dtype, 2);
        const Tensor stored = data(turned ? Shape{n, k} : Shape{k, n}, dtype, 1);
        const auto w = [&] { return turned ? stored.T() : stored; };
        const Outcome row = run([&] { return relu(matmul(x * 0.5, w()) + b); });
        const Outcome column = run([&] { return relu(matmul(w().T(), x.T() * 0.5) + expand_dims(b, 1)); });
        const std::vector<double> want =
            relu(matmul(wide(x) * 0.5, wide(w())) + wide(b)).eval().to_vector<double>();
        expect_near(row.values, want, 0.02);
        expect_near(column.values, want, 0.02);
        if (config().device != "cpu") continue;
        EXPECT_EQ(row.calls + column.calls, 0u);
        EXPECT_LE(row.launches + column.launches, 4u) << "a vector may be made first";
      }
}

TEST(VectorProduct, WeightsOfEightBitsAreNotStored) {
  const std::int64_t k = 256, n = 160;
  const Tensor q = astype(data({n, k}, DType::Float32, 1) * 100, DType::Int8).eval();
  for (const auto& [dtype, rows] : {std::pair{DType::Float32, 1},
                                    {DType::Float32, 2},
                                    {DType::Float32, 3},
                                    {DType::BFloat16, 1},
                                    {DType::BFloat16, 2},
                                    {DType::Float64, 2}}) {
    SCOPED_TRACE(std::string(name(dtype)) + ", rows: " + std::to_string(rows));
    const Tensor x = data({rows, k}, dtype);
    // In the product's type: where conversions are dear, a host stores those of the few scales.
    const Tensor scale = data({n, 1}, dtype, 2).eval(), groups = data({n, k / 32, 1}, dtype, 3).eval();
    const double tolerance = is_half(dtype) ? 0.3 : 1e-4;  // sums of 256 terms of up to 100
    const auto check = [&, dtype = dtype, rows = rows](auto weights) {
      const Outcome got = run([&] { return matmul(x, matrix_transpose(weights(dtype))); });
      const Tensor want = matmul(wide(x), matrix_transpose(weights(DType::Float64)));
      expect_near(got.values, want.eval().to_vector<double>(), tolerance);
      if (config().device != "cpu") return;
      EXPECT_EQ(got.calls, rows > 2) << "more rows than two have stored weights";
      EXPECT_EQ(got.launches, 1u);
    };
    check([&](DType as) { return astype(q, as) * astype(scale, as); });
    check([&](DType as) { return (astype(q, as) - 3.0) * astype(scale, as); });
    check([&](DType as) {
      return (astype(q, as).reshape({n, k / 32, 32}) * astype(groups, as)).reshape({n, k});
    });
  }
}

TEST(VectorProduct, SpecialValues) {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::from(std::vector<float>{1, 0, 2}, {1, 3}).astype(DType::BFloat16);
  const Tensor w =
      Tensor::from(std::vector<float>{1, inf, 0, 1, 1, inf, -1, 1, -inf}, {3, 3}).astype(DType::BFloat16);
  const std::vector<float> got = matmul(x, w).astype(DType::Float32).to_vector<float>();
  EXPECT_EQ(got[0], -1);
  EXPECT_EQ(got[1], inf);
  EXPECT_TRUE(std::isnan(got[2])) << "0 * inf";
}

}  // namespace
}  // namespace kiln
