// What a GPU's block keeps in shared memory to read it again: slabs and columns, by plans of tensors.
#include "engine/gpu_same.h"

#include <functional>
#include <vector>

namespace kiln {
namespace {

class GpuHeld : public testing::GpuSame {
 protected:
  using Program = std::function<Tensor(const Tensor&)>;

  static void same(const Shape& shape, DType type, const Program& program) {
    SCOPED_TRACE(shape.str());
    GpuSame::same([&] { return program(numbers(shape, type)); });
  }
};

TEST_F(GpuHeld, Slabs) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  const Program program = [](const Tensor& x) {
    return (x - max(x, 1, true)) * sum(abs(x), 2, true) + max(x, {1, 2}, true);
  };
  for (const Shape& shape : {Shape{5, 7, 9}, Shape{3, 120, 120}, Shape{2, 1000, 6}, Shape{4, 64, 64},
                             Shape{9001, 5, 7}, Shape{9001, 16, 16}})
    same(shape, DType::Float32, program);
}

TEST_F(GpuHeld, Columns) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  const Program program = [](const Tensor& x) {
    const Tensor y = x - max(x, 0, true);
    return y * sum(abs(y), 0, true);
  };
  for (const DType type : {DType::Float32, DType::Float64, DType::Float16})
    for (const Shape& shape : {Shape{3, 1000}, Shape{17, 260}, Shape{17, 259}, Shape{100, 64}, Shape{300, 72},
                               Shape{49, 1056}, Shape{1000, 88}})
      same(shape, type, program);
}

/// Columns of which adjacent ones have a result together.
TEST_F(GpuHeld, ColumnsInGroups) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const DType type : {DType::Float32, DType::Float64, DType::Float16})
    for (const Shape& shape : {Shape{200, 49, 8, 2}, Shape{200, 300, 8, 5}, Shape{100, 700, 32, 4}})
      same(shape, type, [](const Tensor& x) {
        const Tensor y = x - max(x, {1, 3}, true);
        return y * sum(abs(y), {1, 3}, true);
      });
}

/// Arrays of narrow elements beside wide ones, all of which are written by vectors.
TEST_F(GpuHeld, ColumnsOfSeveralTypes) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const DType type : {DType::Float64, DType::Float32, DType::Float16})
    for (const Shape& shape : {Shape{4, 2}, Shape{5, 64}, Shape{7, 260}})
      same(shape, type, [](const Tensor& x) {
        const Tensor first = (x > 2).eval(), second = (x < 7).eval();
        const Tensor counts = sum(astype(first, DType::Int32), 0, true);
        const Tensor y = where(first, x - astype(counts, x.dtype()), zeros_like(x));
        return y + where(second, x, zeros_like(x)) - max(astype(second, x.dtype()), 0, true);
      });
}

/// Operands that are contiguous along different axes: over the rows of their tiles, and over both.
TEST_F(GpuHeld, Crossed) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const Axes& axes : {Axes{0}, Axes{0, 1}})
    for (const DType type : {DType::Float32, DType::Float64, DType::BFloat16})
      for (const Shape& shape : {Shape{400, 400}, Shape{336, 336}, Shape{333, 333}})
        same(shape, type, [&](const Tensor& x) {
          const Tensor y = permute_dims(x, {1, 0});
          return max(x * y - x, axes) + sum(x + y, axes);
        });
}

/// Rows and columns by one reading: halves, whole vectors, columns that fill no warp, and maps around.
TEST_F(GpuHeld, BothWays) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const DType type : {DType::Float32, DType::Float64, DType::BFloat16})
    for (const Shape& shape : {Shape{333, 333}, Shape{500, 256}, Shape{3000, 41}, Shape{20, 7000}}) {
      SCOPED_TRACE(shape.str());
      GpuSame::same([&] {
        const Tensor x = numbers(shape, type), y = x * x - 2;
        const Tensor rows = sum(y, 1), columns = sum(y, 0) - max(x, 0), least = min(y, 1);
        eval(rows, columns, least);
        return concat({rows, columns, least}, 0);
      });
    }
}

}  // namespace
}  // namespace kiln
