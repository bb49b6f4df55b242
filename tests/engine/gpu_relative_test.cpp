// Logsumexps of a GPU, whose threads combine several values at once, in every form of reduction.
#include "device/cuda/cuda_test.h"

#include <kiln/kiln.h>

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

namespace kiln {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

class GpuRelative : public testing::CudaTest {
 protected:
  /// Values around `base`; of every 11th row the given ones stand among them.
  static Tensor numbers(const Shape& shape, DType type, double base, const std::vector<double>& among,
                        int axis = 0, double slope = 0) {
    std::vector<double> v(static_cast<std::size_t>(shape.numel()));
    std::int64_t behind = 1;
    for (int a = axis + 1; a < shape.rank(); ++a) behind *= shape[a];
    for (std::size_t i = 0; i < v.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i) / behind % shape[axis];
      v[i] = base + static_cast<double>(i * 37 % 61) / 4 - 8 + slope * static_cast<double>(at);
    }
    for (std::size_t i = 0; i < among.size(); ++i)
      for (std::size_t at = i * 5; at < v.size(); at += 997) v[at] = among[i];
    return Tensor::from(v, shape).astype(type).eval();
  }

  /// The same on the GPU and on the CPU: infinities and NaN at the same places, numbers close to each other.
  static void same(const Shape& shape, DType type, const std::vector<int>& axes, double base = 0,
                   const std::vector<double>& among = {}) {
    same_values(shape, type, [&] { return logsumexp(numbers(shape, type, base, among), axes); });
  }
  static void same_values(const Shape& shape, DType type, const std::function<Tensor()>& program,
                          double slack = 1) {
    const auto run = [&] { return program().astype(DType::Float64).to_vector<double>(); };
    const std::vector<double> here = run();
    const std::vector<double> there = on_cpu(run);
    const double relative = type == DType::Float64 ? 1e-14 : type == DType::Float32 ? 1e-6 : 2e-3;
    for (std::size_t i = 0; i < here.size(); ++i) {
      if (!std::isfinite(there[i])) {
        EXPECT_TRUE(here[i] == there[i] || (std::isnan(here[i]) && std::isnan(there[i])))
            << here[i] << " for " << there[i] << " of " << shape.str();
        continue;
      }
      EXPECT_NEAR(here[i], there[i], slack * relative * std::max(1.0, std::abs(there[i]))) << shape.str();
    }
  }

  /// Running values; `slope`: how much a value is greater than the one before.
  static void same_scan(const Shape& shape, int axis, DType type, double slope = 0,
                        const std::vector<double>& among = {}, bool reverse = false) {
    same_values(
        shape, type,
        [&] { return logcumsumexp(numbers(shape, type, 0, among, axis, slope), axis, false, reverse); }, 4);
  }
  static void all_scans(DType type, double slope, const std::vector<double>& among = {}) {
    for (const bool reverse : {false, true}) {
      same_scan({9, 700}, 1, type, slope, among, reverse);      // of a warp, by elements or vectors
      same_scan({2, 40000}, 1, type, slope, among, reverse);    // of a block
      same_scan({70007}, 0, type, slope, among, reverse);       // in chunks of a chain
      same_scan({300, 40}, 0, type, slope, among, reverse);     // columns
      same_scan({6000, 24}, 0, type, slope, among, reverse);    // chunks of columns
      same_scan({400, 31, 3}, 1, type, slope, among, reverse);  // columns in shared memory
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
  all_forms(DType::Float64, -kInf, {});
  all_forms(DType::Float64, kInf, {});  // no step of the way to the result leaves nothing of their sum
}

TEST_F(GpuRelative, RunningValues) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const double slope : {0.0, 0.01, -0.01, 3.0}) all_scans(DType::Float32, slope);
  all_scans(DType::BFloat16, 0);
  same_scan({70007}, 0, DType::Float64, -1);
  same_scan({9, 700}, 1, DType::Float64, 1);
}

TEST_F(GpuRelative, RunningValuesOfInfinitiesAndNan) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const std::vector<double>& among :
       {std::vector<double>{-kInf}, {kInf}, {kInf, -kInf, kInf}, {1e30, -1e30}, {std::nan(""), kInf}})
    all_scans(DType::Float32, 0, among);
}

}  // namespace
}  // namespace kiln
