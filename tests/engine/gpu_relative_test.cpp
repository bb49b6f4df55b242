// Logsumexps of a GPU, whose threads combine several values at once, in every form of reduction.
#include "device/cuda/cuda_test.h"

#include <kiln/kiln.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace kiln {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

class GpuRelative : public testing::CudaTest {
 protected:
  /// Values around `base`; of every 11th row the given ones stand among them.
  static Tensor numbers(const Shape& shape, DType type, double base, const std::vector<double>& among) {
    std::vector<double> v(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = base + static_cast<double>(i * 37 % 61) / 4 - 8;
    for (std::size_t i = 0; i < among.size(); ++i)
      for (std::size_t at = i * 5; at < v.size(); at += 997) v[at] = among[i];
    return Tensor::from(v, shape).astype(type).eval();
  }

  /// The same on the GPU and on the CPU: infinities and NaN at the same places, numbers close to each other.
  static void same(const Shape& shape, DType type, const std::vector<int>& axes, double base = 0,
                   const std::vector<double>& among = {}) {
    const auto run = [&] {
      return logsumexp(numbers(shape, type, base, among), axes).astype(DType::Float64).to_vector<double>();
    };
    const std::vector<double> here = run();
    const Config before = config();
    Config c = before;
    c.device = "cpu";
    configure(c);
    const std::vector<double> there = run();
    configure(before);
    const double relative = type == DType::Float64 ? 1e-14 : type == DType::Float32 ? 1e-6 : 2e-3;
    for (std::size_t i = 0; i < here.size(); ++i) {
      if (!std::isfinite(there[i])) {
        EXPECT_TRUE(here[i] == there[i] || (std::isnan(here[i]) && std::isnan(there[i])))
            << here[i] << " for " << there[i] << " of " << shape.str();
        continue;
      }
      EXPECT_NEAR(here[i], there[i], relative * std::max(1.0, std::abs(there[i]))) << shape.str();
    }
  }

  static void all_forms(DType type, double base, const std::vector<double>& among) {
    same({700, 7}, type, {1}, base, among);        // a thread's rows
    same({300, 33}, type, {1}, base, among);       // rows in shared memory
    same({90, 121}, type, {1}, base, among);       // of a few lanes
    same({40, 1210}, type, {1}, base, among);      // of a block, element by element
    same({33, 2048}, type, {1}, base, among);      // by vectors
    same({2, 70001}, type, {1}, base, among);      // in chunks
    same({300, 72}, type, {0}, base, among);       // columns
    same({50, 64, 7}, type, {0, 2}, base, among);  // several axes
    same({3, 40000}, type, {0}, base, among);
    same({40, 70, 30}, type, {0, 1, 2}, base, among);
  }
};

TEST_F(GpuRelative, EveryForm) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  all_forms(DType::Float32, 0, {});
  same({40, 1210}, DType::Float64, {1});
  same({300, 72}, DType::Float64, {0});
  same({33, 2048}, DType::Float16, {1});
  same({50, 64, 7}, DType::BFloat16, {0, 2});
}

TEST_F(GpuRelative, LargeValues) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  all_forms(DType::Float32, 5e4, {-5e4, 1e30, -1e30});
  same({40, 1210}, DType::Float64, {1}, 1e9, {1e300, -1e300});
}

TEST_F(GpuRelative, InfinitiesAndNan) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const std::vector<double>& among :
       {std::vector<double>{-kInf}, {kInf}, {kInf, -kInf, kInf}, {std::nan(""), kInf}})
    all_forms(DType::Float32, 0, among);
  same({40, 1210}, DType::Float64, {1}, 0, {kInf, -kInf});
  same({300, 72}, DType::Float64, {0}, 0, {std::nan("")});
  all_forms(DType::Float32, -kInf, {});
  all_forms(DType::Float32, kInf, {});
}

}  // namespace
}  // namespace kiln
