// Rows that begin anywhere in memory, which a GPU takes by memory's own vectors, and short columns that share
// its lanes, by plans of tensors.
#include "engine/gpu_same.h"

#include <functional>
#include <vector>

namespace kiln {
namespace {

class GpuRows : public testing::GpuSame {
 protected:
  using Program = std::function<Tensor(const Tensor&)>;

  static void same(const Shape& shape, DType type, const Program& program) {
    SCOPED_TRACE(shape.str() + " " + std::string(name(type)));
    GpuSame::same([&] { return program(numbers(shape, type)); });
  }
};

const std::vector<Shape> kRows = {{3, 3, 515}, {5, 769}, {2, 9001}};

TEST_F(GpuRows, AreReadAgain) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const DType type : {DType::BFloat16, DType::Int8})
    for (const Shape& shape : kRows) same(shape, type, [](const Tensor& x) { return x - max(x, -1, true); });
  for (const DType type : {DType::Float16})
    for (const Shape& shape : kRows)
      same(shape, type, [](const Tensor& x) {
        const Tensor y = x.astype(DType::Float32);
        return y - sum(abs(y - min(y, -1, true)), -1, true);
      });
}

TEST_F(GpuRows, AreReduced) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const DType type : {DType::Float16, DType::Int8})
    for (const Shape& shape : kRows) {
      same(shape, type, [](const Tensor& x) { return sum(x.astype(DType::Float32), -1); });
      same(shape, type, [](const Tensor& x) { return argmax(x, -1); });
      same(shape, type, [](const Tensor& x) { return min(x, -1) + max(x, -1); });
    }
}

TEST_F(GpuRows, OfSeveralAxesAreOne) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const DType type : {DType::Float32, DType::BFloat16})
    for (const Shape& shape :
         {Shape{7, 3, 175}, Shape{2, 5, 13, 49}, Shape{5, 32, 196}, Shape{5, 8, 49}, Shape{5, 4, 49}})
      same(shape, type, [&](const Tensor& x) {
        const int rank = static_cast<int>(shape.rank());
        const Tensor y = x.astype(DType::Float32), most = max(y, {rank - 2, rank - 1}, true);
        const Tensor factor = numbers(Shape{shape[static_cast<std::size_t>(rank - 2)], 1}, DType::Float32);
        return ((y - most) * factor).astype(x.dtype());
      });
}

TEST_F(GpuRows, AreScanned) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const DType type : {DType::Float16, DType::Int8})
    for (const Shape& shape : kRows) {
      same(shape, type, [](const Tensor& x) { return cummin(x, -1); });
      same(shape, type, [](const Tensor& x) { return cumsum(x.astype(DType::Float32), -1); });
    }
}

/// Slabs of chunks, which do not lie one after the other, are copied by the vectors of their runs.
TEST_F(GpuRows, OfChunksAreCopiedByVectors) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const DType type : {DType::Float32, DType::Float16})
    for (const Shape& shape : {Shape{3, 1459, 8}, Shape{2, 700, 12}})
      for (const bool reverse : {false, true})
        same(shape, type, [&](const Tensor& x) { return cummin(x, 1, false, reverse); });
}

/// Rounded to bytes: of what no byte holds the nearest one.
TEST_F(GpuRows, AreQuantised) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const DType type : {DType::Float32, DType::BFloat16})
    for (const DType to : {DType::Int8, DType::UInt8})
      for (const Shape& shape : kRows) {
        same(shape, type, [to](const Tensor& x) {
          const Tensor y = x.astype(DType::Float32), step = maximum(max(abs(y), -1, true), 1e-6f) / 127.0f;
          return round(y / step).astype(to);
        });
        same(shape, type, [to](const Tensor& x) { return (x.astype(DType::Float32) * 10.25f).astype(to); });
      }
}

TEST_F(GpuRows, FewOfShortColumnsShareTheLanes) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const DType type : {DType::Float32, DType::BFloat16})
    for (const Shape& shape : {Shape{3, 1100, 12}, Shape{900, 2, 44}, Shape{9, 500, 20}, Shape{3, 700, 11}})
      for (const int axis : {0, 1})
        same(shape, type, [&](const Tensor& x) {
          const Tensor y = x.astype(DType::Float32) - max(x, axis, true).astype(DType::Float32);
          const Tensor factor = numbers(Shape{shape[2]}, DType::Float32);
          return (y * factor + sum(abs(y), axis, true)).astype(DType::Float32);
        });
}

}  // namespace
}  // namespace kiln
