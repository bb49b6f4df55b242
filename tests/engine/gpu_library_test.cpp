// Sorts, searches and scatters in plans of a GPU: enqueued, in order with what surrounds them; with sorts and
// searches never in graphs.
#include "counted.h"
#include "device/cuda/cuda_test.h"

#include <kiln/config.h>

#include <gtest/gtest.h>

#include <vector>

namespace kiln {
namespace {

class GpuLibrary : public testing::CudaTest {};

/// More steps than a graph needs, and one of each kind.
Tensor program(const Tensor& x) {
  const Tensor total = sum(x * 2.0f, 0, true), order = argsort(x + total), sorted = sort(x * 1.0f);
  const Tensor places = searchsorted(sorted, x);
  return scatter_add(zeros({8}), order, sorted + sum(sorted, 0, true)) + places.astype(DType::Float32);
}

TEST_F(GpuLibrary, StepsThatComeAgainAreNoGraphAndStayRight) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  const Tensor x = Tensor::from(std::vector<float>{3, 1, 2, 5, 4, 7, 6, 0}).eval();
  // Sorted 0 … 7, each plus their sum, at argsort's places: every element at its own again.
  const std::vector<float> want{34, 30, 32, 38, 36, 42, 40, 28};
  const std::uint64_t graphs = statistics().graphs;
  for (int i = 0; i < 6; ++i) EXPECT_EQ(program(x).to_vector<float>(), want) << i;
  EXPECT_EQ(statistics().graphs, graphs);
}

/// The host writes which iteration it is; what an iteration reads and keeps is that one's.
TEST_F(GpuLibrary, LoopsOverWholeTensorsCount) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  const auto averages = [] {
    const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {5, 2});
    const Scanned s = scan(
        [](const Tensors& c, const Tensors& in) {
          const Tensor next = c[0] * 0.5f + in[0] + sum(c[0]);
          return Scanned{{next}, {sort(next, 0, true)}};
        },
        {ones({2})}, {x});
    return concat({s.carry[0].reshape({1, 2}), s.ys[0]}).to_vector<float>();
  };
  const std::vector<float> here = averages();
  Config c = config();
  c.device = "cpu";
  configure(c);
  EXPECT_EQ(here, averages());
}

TEST_F(GpuLibrary, StepsDoNotWaitForTheDevice) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  const Tensor x = Tensor::from(std::vector<float>{3, 1, 2, 5, 4, 7, 6, 0}).eval();
  const std::vector<float> want = program(x).to_vector<float>();  // compiles
  const cuda::Stream stream = cuda::current_stream(0);
  cuda::synchronize(stream);
  cuda::spin(stream, 300);
  const Tensor y = program(x).eval();
  EXPECT_FALSE(cuda::idle(stream)) << "evaluating does not wait";
  EXPECT_EQ(y.to_vector<float>(), want);
}

}  // namespace
}  // namespace kiln
