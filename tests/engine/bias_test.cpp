// Sums of a matrix product and a row or an array, which a GPU's library adds before it rounds.
#include "counted.h"
#include "device/cuda/cuda_test.h"
#include "library/cuda/blas.h"
#include "support/check.h"

#include <kiln/config.h>
#include <kiln/kiln.h>

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace kiln {
namespace {

class GpuBias : public testing::CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    if (!cuda::blas().available) GTEST_SKIP() << "no cuBLASLt: " << cuda::blas().reason;
  }
};

Tensor some(const Shape& shape, DType dtype, int seed) { return test::data(shape, dtype, seed).eval(); }

/// a @ b + bias beside float64, where the last axis of the bias is the product's.
void expect_sum(const Tensor& got, const Tensor& a, const Tensor& b, const Tensor& bias, double tolerance) {
  const DType wide = DType::Float64;
  const std::vector<double> want =
      (matmul(astype(a, wide), astype(b, wide)) + astype(bias, wide)).to_vector<double>();
  const std::vector<double> have = astype(got, wide).to_vector<double>();
  ASSERT_EQ(have.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(have[i], want[i], tolerance * std::max(1.0, std::abs(want[i]))) << "element " << i;
}

/// The program's result, of one call of the library and no kernel.
Tensor by_the_library_alone(const std::function<Tensor()>& program) {
  Tensor y;
  const test::Counted c = test::count([&] { y = program().eval(); });
  EXPECT_EQ(c.library_calls, 1u);
  EXPECT_EQ(c.launches, 0u);
  return y;
}

TEST_F(GpuBias, IsAddedByTheProduct) {
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::BFloat16, 8e-3}, {DType::Float16, 1e-3}, {DType::Float32, 1e-5}}) {
    const Tensor x = some({24, 64}, dtype, 1), w = some({64, 40}, dtype, 2), b = some({40}, dtype, 3),
                 many = some({3, 24, 64}, dtype, 4);
    const Tensor across = some({24}, dtype, 7);
    const Tensor odd = some({41}, dtype, 5), table = some({4, 40}, dtype, 6);
    const std::pair<const char*, std::function<Tensor()>> programs[] = {
        {"a vector", [&] { return matmul(x, w) + b; }},
        {"on the left", [&] { return b + matmul(x, w); }},
        {"a row of a matrix", [&] { return matmul(x, w) + table(2); }},
        {"a slice that begins anywhere", [&] { return matmul(x, w) + odd(range(1, 41)); }},
        {"of a stack", [&] { return matmul(many, w) + b; }},
        {"a transposed operand", [&] { return matmul(w.T(), x.T()) + across; }},
    };
    const Tensor biases[] = {b, b, table(2), odd(range(1, 41)), b, across};
    for (std::size_t i = 0; i < std::size(programs); ++i) {
      SCOPED_TRACE(cat(name(dtype), ", ", programs[i].first));
      const Tensor y = by_the_library_alone(programs[i].second);
      const bool transposed = i == 5;
      expect_sum(y, transposed ? w.T() : i == 4 ? many : x, transposed ? x.T() : w, biases[i], tolerance);
    }
  }
}

TEST_F(GpuBias, ArraysAreAddedByTheProduct) {
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::BFloat16, 8e-3}, {DType::Float16, 1e-3}, {DType::Float32, 1e-5}}) {
    const Tensor x = some({24, 64}, dtype, 1), w = some({64, 40}, dtype, 2), b = some({40}, dtype, 3),
                 stack = some({4, 6, 40}, dtype, 4), many = some({3, 24, 64}, dtype, 5),
                 table = some({5, 24, 40}, dtype, 6);
    const Tensor full = stack.reshape({24, 40});
    const std::pair<const char*, std::function<Tensor()>> programs[] = {
        {"an array", [&] { return matmul(x, w) + full; }},
        {"on the left", [&] { return full + matmul(x, w); }},
        {"under a reshape", [&] { return stack + matmul(x, w).reshape({4, 6, 40}); }},
        {"behind a row", [&] { return stack + (matmul(x, w) + b).reshape({4, 6, 40}); }},
        {"of a stack, in the middle of memory", [&] { return matmul(many, w) + table(range(1, 4)); }},
    };
    for (std::size_t i = 0; i < std::size(programs); ++i) {
      SCOPED_TRACE(cat(name(dtype), ", ", programs[i].first));
      const Tensor y = by_the_library_alone(programs[i].second);
      const Tensor added = i == 4 ? table(range(1, 4)) : i == 3 ? full + b : full;
      expect_sum(y.reshape(added.shape()), i == 4 ? many : x, w, added, 2 * tolerance);
    }
  }
}

/// The rest of the kernel reads the sum.
TEST_F(GpuBias, ResidualsLeaveTheNormBehindThem) {
  const DType dtype = DType::BFloat16;
  const Tensor x = some({24, 64}, dtype, 1), w = some({64, 40}, dtype, 2), b = some({40}, dtype, 3),
               residual = some({24, 40}, dtype, 4);
  std::vector<Tensor> out(2);
  const test::Counted c = test::count([&] {
    out[0] = residual + (matmul(x, w) + b);
    const Tensor wide = astype(out[0], DType::Float32);
    out[1] = wide * rsqrt(mean(wide * wide, -1, true) + 1e-5);
    eval(out);
  });
  EXPECT_EQ(c.library_calls, 1u);
  EXPECT_EQ(c.launches, 1u);
  expect_sum(out[0], x, w, residual + b, 2e-2);
  const Tensor wide = astype(out[0], DType::Float64);
  const std::vector<double> want = (wide * rsqrt(mean(wide * wide, -1, true) + 1e-5)).to_vector<double>(),
                            have = astype(out[1], DType::Float64).to_vector<double>();
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(have[i], want[i], 1e-4 * std::max(1.0, std::abs(want[i])));
}

TEST_F(GpuBias, IsAKernelsWhereTheLibraryCannot) {
  const Tensor x = some({24, 64}, DType::Float32, 1), w = some({64, 40}, DType::Float32, 2),
               b = some({40}, DType::Float32, 3);
  const Tensor column = some({24, 1}, DType::Float32, 4), turned = some({40, 24}, DType::Float32, 5).T();
  const auto launches = [](const std::function<std::vector<Tensor>()>& f) {
    return test::count([&] { eval(f()); }).launches;
  };
  EXPECT_EQ(launches([&] { return std::vector{matmul(x, w) + column}; }), 1u);
  EXPECT_EQ(launches([&] { return std::vector{matmul(x, w) + turned}; }), 1u);
  EXPECT_EQ(launches([&] { return std::vector{matmul(x, w) + 2.0f}; }), 1u);
  EXPECT_EQ(launches([&] { return std::vector{relu(matmul(x, w) + b)}; }), 1u)
      << "one kernel adds and chooses";
  const Tensor product = matmul(x, w);
  EXPECT_EQ(launches([&] { return std::vector{product + b}; }), 1u) << "somebody holds the product";
  EXPECT_EQ(launches([&] {
              const Tensor p = matmul(x, w * 2.0f);
              return std::vector{p + b, p - b};
            }),
            2u)
      << "the weights, and one kernel that reads the product twice";
  EXPECT_EQ(launches([&] { return std::vector{matmul(zeros({3, 0}), zeros({0, 40})) + b}; }), 1u)
      << "nothing to multiply";
}

TEST_F(GpuBias, ChainsOfLayersAndTheirNaNs) {
  const Tensor w = some({32, 32}, DType::BFloat16, 1), b = some({32}, DType::BFloat16, 2);
  Tensor x = some({16, 32}, DType::BFloat16, 3);
  Tensor wide = astype(x, DType::Float64);
  const test::Counted c = test::count([&] {
    Tensor h = x;
    for (int i = 0; i < 5; ++i) h = matmul(h, w * 0.25) + b;
    x = h.eval();
  });
  EXPECT_EQ(c.library_calls, 5u);
  EXPECT_LE(c.launches, 1u) << "the scaled weights";
  const Tensor scaled = astype((w * 0.25).eval(), DType::Float64);
  for (int i = 0; i < 5; ++i) wide = matmul(wide, scaled) + astype(b, DType::Float64);
  const std::vector<double> want = wide.to_vector<double>(),
                            have = astype(x, DType::Float64).to_vector<double>();
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(have[i], want[i], 0.05 * std::max(1.0, std::abs(want[i])));

  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor bad = Tensor::from(std::vector<float>{1, nan, 3, 4}, {4}).eval();
  const std::vector<float> y =
      (matmul(some({8, 8}, DType::Float32, 4), some({8, 4}, DType::Float32, 5)) + bad).to_vector<float>();
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i % 4 == 1) << i;
}

TEST_F(GpuBias, OfAScalarIsNoRow) {
  const Tensor x = some({16}, DType::Float32, 1), y = some({16}, DType::Float32, 2), b = Tensor(2.0f).eval();
  EXPECT_NEAR((matmul(x, y) + b).item<float>(), sum(x * y).item<float>() + 2, 1e-4);
}

TEST_F(GpuBias, IsRoundedByItselfWhereThatIsPromised) {
  Config c = config();
  c.strict = true;
  configure(c);
  const Tensor x = some({8, 16}, DType::Float32, 1), w = some({16, 8}, DType::Float32, 2),
               b = some({8}, DType::Float32, 3);
  EXPECT_EQ(test::count([&] { (matmul(x, w) + b).eval(); }).launches, 1u);
}

}  // namespace
}  // namespace kiln
