// Histograms on a GPU whose indices a kernel makes and counts itself.
#include "counted.h"
#include "device/cuda/cuda_test.h"
#include "kernel/kernel.h"

#include <kiln/config.h>

#include <gtest/gtest.h>

#include <vector>

namespace kiln {
namespace {

using test::count;

class GpuTally : public testing::CudaTest {
 protected:
  void SetUp() override {
    testing::CudaTest::SetUp();
    if (!IsSkipped() && !cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  }
};

/// n numbers from -0.25 to 1.25 in no order, of which some are NaN.
Tensor numbers(std::int64_t n) {
  const Tensor i = arange(n) * 7919 % 100003;
  const Tensor x = i.astype(DType::Float32) / 100003 * 1.5 - 0.25;
  return where(i % 1000 == 7, 0.0f / (x - x), x).eval();
}

Tensor positions(const Tensor& x, std::int64_t bins, DType dtype = DType::Int32) {
  return floor(x * static_cast<double>(bins)).astype(dtype);
}

Tensor histogram(const Tensor& at, std::int64_t bins, const Tensor& number = Tensor(1),
                 DType dtype = DType::Int32) {
  return scatter_add(zeros({bins}, dtype), at, number, 0);
}

/// The same counted here.
std::vector<std::int64_t> expected(const Tensor& at, std::int64_t bins, std::int64_t number = 1) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(bins));
  for (const std::int64_t i : at.astype(DType::Int64).to_vector<std::int64_t>()) {
    const std::int64_t from_front = i < 0 ? i + bins : i;
    if (from_front >= 0 && from_front < bins) out[static_cast<std::size_t>(from_front)] += number;
  }
  return out;
}

std::vector<std::int64_t> wide(const Tensor& counts) {
  return counts.astype(DType::Int64).to_vector<std::int64_t>();
}

TEST_F(GpuTally, EveryLengthAndNumberOfBins) {
  for (const auto& [n, bins] : {std::pair<std::int64_t, std::int64_t>{5000, 1},
                                {4097, 2},
                                {100003, 10},
                                {70001, 300},
                                {50000, 4096},
                                {130000, 32768},
                                {131077, 32769},
                                {262144, 65536},
                                {270000, 65537}}) {
    SCOPED_TRACE(::testing::Message() << n << " numbers, " << bins << " bins");
    const Tensor x = numbers(n);
    EXPECT_EQ(wide(histogram(positions(x, bins), bins)), expected(positions(x, bins).eval(), bins));
  }
}

TEST_F(GpuTally, EveryDtypeOfIndicesAndCounts) {
  const Tensor x = numbers(9000);
  for (const DType of_index : {DType::Int8, DType::UInt8, DType::Int16, DType::UInt32, DType::Int64})
    for (const DType of_counts : {DType::Int32, DType::UInt32, DType::Int64, DType::Int16}) {
      SCOPED_TRACE(::testing::Message() << name(of_index) << ", " << name(of_counts));
      const auto at = [&] { return positions(where(x >= 0, x, 0.5f), 60, of_index); };
      EXPECT_EQ(wide(histogram(at(), 60, Tensor(3).astype(of_counts), of_counts)),
                expected(at().eval(), 60, 3));
    }
}

/// Counters of 16 bits hand on what they cannot hold.
TEST_F(GpuTally, OnePlaceThatComesOften) {
  const auto at = [] { return (arange(200000) % 5 / 4 * (arange(200000) % 40000)).astype(DType::Int32); };
  EXPECT_EQ(wide(histogram(at(), 40000)), expected(at().eval(), 40000));
}

TEST_F(GpuTally, TheIndicesAreInNoMemory) {
  const Tensor x = numbers(100000);
  const auto apart = count([&] {
    const Tensor at = positions(x, 100).eval();
    histogram(at, 100).eval();
  });
  const auto together = count([&] { histogram(positions(x, 100), 100).eval(); });
  EXPECT_EQ(together.launches, apart.launches);
  EXPECT_EQ(apart.library_calls, 1);
  EXPECT_EQ(together.library_calls, 0);
}

TEST_F(GpuTally, CountsAreAddedToWhatIsThere) {
  const Tensor x = numbers(80000);
  const Tensor before = (arange(50) * 3 - 20).astype(DType::Int32).eval();
  std::vector<std::int64_t> want = expected(positions(x, 50).eval(), 50);
  for (std::size_t i = 0; i < want.size(); ++i) want[i] += static_cast<std::int64_t>(i) * 3 - 20;
  EXPECT_EQ(wide(scatter_add(before, positions(x, 50), Tensor(1), 0)), want);
  EXPECT_EQ(wide(scatter_add(before * 1, positions(x, 50), Tensor(1), 0)), want);
  EXPECT_EQ(before.to_vector<std::int32_t>().front(), -20);
}

TEST_F(GpuTally, IndicesThatSomebodyReadsAreStored) {
  const Tensor x = numbers(60000), at = positions(x, 100), counts = histogram(at, 100);
  eval({at, counts});
  EXPECT_EQ(wide(counts), expected(at, 100));
  const Tensor other = positions(where(x > 0, x, 0.0f), 64), few = histogram(other, 64),
               many = histogram(other, 2000);
  eval({few, many});
  EXPECT_EQ(wide(few), expected(other, 64));
  EXPECT_EQ(wide(many), expected(other, 2000));
}

TEST_F(GpuTally, ScalarsChangeBetweenRuns) {
  const Tensor x = numbers(50000);
  for (const double scale : {10.0, 20.0, 40.0, 10.0, 30.0, 50.0}) {
    const auto at = [&] { return floor(x * scale).astype(DType::Int32); };
    EXPECT_EQ(wide(histogram(at(), 30)), expected(at().eval(), 30)) << scale;
  }
}

}  // namespace
}  // namespace kiln
