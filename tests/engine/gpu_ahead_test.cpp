// What a GPU's thread loads before it computes (tests/codegen/cuda_ahead_test.cpp looks at the code): the
// values.
#include "engine/gpu_same.h"

#include <functional>
#include <vector>

namespace kiln {
namespace {

class GpuAhead : public testing::GpuSame {};

TEST_F(GpuAhead, ElementsThatStoredValuesChoose) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  for (const DType type : {DType::Float64, DType::Int16})
    for (const bool strict : {false, true}) {
      SCOPED_TRACE(std::string(name(type)) + (strict ? ", strict" : ""));
      Config c = config();
      c.strict = strict;
      const ScopedConfig scope(c);
      const Shape dims{5, 21, 9}, spread{5, 1, 9};
      same([&] {  // down columns, by a choice that all rows of a slab share
        const Tensor x = numbers(dims, type), keep = (numbers(spread, type, 11) > 0).eval();
        return sum(where(keep, x, zeros_like(x)), 1);
      });
      same([&] {  // by one of each element's own, made of two
        const Tensor x = numbers(dims, type), y = numbers(dims, type, 7);
        const Tensor one = (x > 3).eval(), other = (y > 5).eval();
        return sum(where(logical_and(one, logical_not(other)), x, y), 1);
      });
      same([&] {  // a choice within another
        const Tensor x = numbers(dims, type), y = numbers(dims, type, 7);
        const Tensor one = (numbers(spread, type, 11) > 0).eval(), other = (y > 5).eval();
        return sum(where(one, where(other, x, y), zeros_like(x)), 1);
      });
      same([&] {  // at indices from memory
        const Tensor x = numbers(dims, type), keep = (numbers(spread, type, 11) > 0).eval();
        const Tensor rows = remainder(numbers({21}, DType::Int32), 21).eval();
        return sum(where(keep, take(x, rows, 1), zeros_like(x)), 1);
      });
    }
}

/// A choice between two places of one tensor is one load, whose buffer begins at a start that varies.
TEST_F(GpuAhead, PlacesOfOneTensorFromStartsThatVary) {
  if (!cuda::computes()) GTEST_SKIP() << "kernels do not run on this driver";
  const auto x_there = [] { return numbers({3, 4}, DType::Float32); };
  for (std::int64_t step = 0; step < 12; ++step) {
    SCOPED_TRACE(step);
    const std::vector<Slice> at{range(step % 3, 3, 3), Slice(step % 4), range(step % 2, step % 2 + 1, 1)};
    same([&] {
      const Tensor x = x_there(), both = stack({x, x}, 2);
      return slice_update(both, at, flip(abs(both.index(at))));
    });
    same([&] {
      const Tensor x = x_there(), row = x.index(std::vector<Slice>{range(step % 3, step % 3 + 1, 1)});
      return concat({flip(row), row * 2, row}, 0) + concat({row, row, roll(row, 1, 1)}, 0);
    });
  }
}

}  // namespace
}  // namespace kiln
