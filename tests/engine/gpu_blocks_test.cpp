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
    const std::vector<std::int32_t> there = on_cpu(run);
    EXPECT_TRUE(here == there);
  }
};

/// Too much is read between two reads of what repeats for the second cache to keep it.
TEST_F(GpuBlocks, OfRepeatedOperandsFollowEachOther) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  same([] {
    constexpr std::int64_t n = 720'011;
    return numbers({2, n}, DType::Float64) + numbers({1, n}, DType::Float64) -
           numbers({2, 1}, DType::Float64);
  });
  same([] {  // along one of two outer axes, and along both
    constexpr std::int64_t n = 530'011;
    const Tensor x = numbers({2, 2, n}, DType::Float64);
    return x * numbers({2, 1, n}, DType::Float64) + numbers({n}, DType::Float64);
  });
}

/// The taps of a stencil along an axis whose elements are too far apart for the second cache; the last slice
/// has no whole blocks.
TEST_F(GpuBlocks, OfStencilsFollowEachOther) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const std::int64_t n : {std::int64_t{1} << 20, std::int64_t{1'100'003}})
    same([n] {
      const Tensor x = numbers({3, n}, DType::Float64);
      return x - roll(x, 1, 0) + roll(x, -1, 0) + roll(x, 2, 1);
    });
  same([] {  // no two neighbours are too far apart, but the first and the last
    const Tensor x = numbers({6, 500'003}, DType::Float64);
    return x + roll(x, 2, 0) + roll(x, 1, 0) - roll(x, -1, 0) - roll(x, -2, 0);
  });
  same([] {  // the inner axes are a part of the operand's
    const Tensor x = numbers({5, 60'001, 17}, DType::Float64);
    const auto at = [&](std::int64_t first) {
      const Slice part[] = {slice::range(first, first + 3), slice::range(1, 60'000), slice::range(1, 16)};
      return x.index(part);
    };
    return at(1) - at(0) + at(2);
  });
  same([] {  // a thread has several rows of the middle axis
    const Tensor x = numbers({5, 61, 9'001}, DType::Float64);
    Tensor sum = x + roll(x, 2, 0) + roll(x, -2, 0);
    for (const int by : {-2, -1, 1, 2}) sum = sum + roll(x, by, 1);
    return sum;
  });
}

/// What is made of pairs is reduced by teams that have several rows, in one phase or two, and by the largest.
TEST_F(GpuBlocks, OfPairsThatAreReduced) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const std::int64_t n : {129, 9'000})
    for (const std::int64_t k : {3}) {
      same([n, k] {
        return max(matmul(numbers({600, k}, DType::Float32), numbers({k, n}, DType::Float32)), 1);
      });
      same([n, k] {
        const Tensor y = matmul(numbers({600, k}, DType::Float64), numbers({k, n}, DType::Float64));
        const Tensor away = abs(y - max(y, 1, true));
        return max(away, 1);
      });
      same([n, k] {
        const Tensor x = numbers({600, 1, k}, DType::Float32), y = numbers({n, k}, DType::Float32);
        return argmin(sum(abs(x - y), 2), 1);
      });
    }
}

/// The columns of pairs come by halves, of one group of four and of several.
TEST_F(GpuBlocks, OfPairsWhoseColumnsComeByHalves) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const std::int64_t k : {4, 8, 20})
    for (const DType type : {DType::Float32, DType::Float16})
      same([type, k] {
        const Tensor x = numbers({300, 1, k}, type), y = numbers({k, 512}, type);
        return min(abs(x - swapaxes(y, 0, 1)), 2);
      });
}

/// Few or ragged columns of pairs are taken by strips, and those of several tiles of rows share the lanes.
TEST_F(GpuBlocks, OfPairsWhoseColumnsShareLanes) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const std::int64_t n : {16, 100, 131, 150})
    for (const std::int64_t k : {4, 5, 40})  // sums of one block, and of two
      for (const DType type : {DType::Float32, DType::Float64, DType::Float16}) {
        const auto pairs = [=] {
          return abs(numbers({1203, 1, k}, type) - numbers({n, k}, type)).astype(DType::Float32);
        };
        same([&] { return sum(pairs(), 2); });
        same([&] { return max(pairs(), 2); });
      }
}

/// Products with the rows of one operand whose results are only reduced are made where they are reduced.
TEST_F(GpuBlocks, OfProductsThatAreReduced) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const std::int64_t k : {4, 16})
    same([k] {
      const Tensor x = numbers({2050, 1, k}, DType::Float32), y = numbers({2056, k}, DType::Float32);
      return argmax(sum(x * y, 2), 1);
    });
}

/// A sum of what all rows share, in blocks; the variance reads its elements twice.
TEST_F(GpuBlocks, OfRowsThatShareWhatTheyRead) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const std::int64_t n : {33, 700})
    same([n] {
      const Tensor x = numbers({3001, 1}, DType::Float32) * numbers({1, n}, DType::Float32);
      return sum(minimum(x, numbers({n}, DType::Float32)), 1);
    });
}

/// Filters whose elements are there for a part of the points, along rows too short for windows.
TEST_F(GpuBlocks, OfSingleElements) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const DType type : {DType::Float64, DType::Float32})
    for (const std::int64_t size : {5, 7})  // written out; a sum over rows of the filter
      same([type, size] {
        const std::int64_t around = size / 2;
        return nn::conv(numbers({3, 2, 20, 20}, type), numbers({2, 1, size, size}, type), {},
                        {.padding = {around, around}, .groups = 2});
      });
}

}  // namespace
}  // namespace kiln
