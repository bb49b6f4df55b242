// In which order a GPU's blocks go over a map, by plans of tensors: what they compute does not depend on it.
#include "device/cuda/cuda_test.h"

#include <kiln/kiln.h>

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <vector>

namespace kiln {
namespace {

class GpuBlocks : public testing::CudaTest {
 protected:
  static Tensor numbers(const Shape& shape, DType type) {
    std::vector<std::int32_t> v(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<std::int32_t>(i * 37 % 101);
    return Tensor::from(v, shape).astype(type).eval();
  }
  static void same(const std::function<Tensor()>& program) {
    const auto run = [&] { return program().astype(DType::Int32).to_vector<std::int32_t>(); };
    const std::vector<std::int32_t> here = run();
    const Config before = config();
    Config c = before;
    c.device = "cpu";
    configure(c);
    const std::vector<std::int32_t> there = run();
    configure(before);
    EXPECT_TRUE(here == there);
  }
};

/// Too much is read between two reads of what repeats for the second cache to keep it.
TEST_F(GpuBlocks, OfRepeatedOperandsFollowEachOther) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  constexpr std::int64_t n = (1 << 20) + 37;
  same([] {
    return numbers({3, n}, DType::Float64) + numbers({1, n}, DType::Float64) -
           numbers({3, 1}, DType::Float64);
  });
  same([] {  // along one of two outer axes, and along both
    const Tensor x = numbers({2, 3, n}, DType::Float32);
    return x * numbers({2, 1, n}, DType::Float32) + numbers({n}, DType::Float32);
  });
}

/// Filters whose elements are there for a part of the points, along rows too short for windows.
TEST_F(GpuBlocks, OfSingleElements) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const DType type : {DType::Float64, DType::Float32})
    same([type] {
      return nn::conv(numbers({3, 2, 20, 20}, type), numbers({2, 1, 5, 5}, type), {},
                      {.padding = {2, 2}, .groups = 2});
    });
}

}  // namespace
}  // namespace kiln
