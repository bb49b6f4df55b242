// Rows of large results that begin anywhere in a line: loops begin at the line, mask what is before the row
// and store past the caches.
#include "api/expect.h"
#include "codegen/on_target.h"
#include "modes.h"
#include "support/check.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

Tensor numbers(DType dtype, const Shape& shape) {
  const Tensor place = arange(shape.numel(), DType::Int64);
  return ((place * 40503 >> 7) % 50).astype(dtype).reshape(shape).eval();
}

template <class F>
void expect_as_interpreted(F f, const std::string& what) {
  std::vector<Tensor> want;
  {
    const testing::ModeScope scope(Mode::Interpret);
    want = f();
    eval(want);
  }
  for (const std::string& target : testing::cpu_targets()) {
    const testing::ConfigScope scope(target);
    std::vector<Tensor> got = f();
    eval(got);
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(array_equal(got[i], want[i], true)) << what << ", result " << i << ", KILN_CPU=" << target;
  }
}

/// Results of 8 MiB and more. Rows of a few lines, of more than a grid item, and of less than a vector more.
TEST(LlvmLines, RowsThatBeginAnywhereInALine) {
  for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float64}) {
    const std::int64_t size = size_of(dtype), elements = (9 << 20) / size;
    for (const std::int64_t row : {512 / size + 1, 1023 / size * 2 + 3, std::int64_t{4099}}) {
      const Tensor x = numbers(dtype, {elements / row, row}), column = numbers(dtype, {elements / row, 1});
      expect_as_interpreted(
          [&]() -> std::vector<Tensor> {
            return {flip(x, {0}) + column, pad(x, {{1, 0}, {9, 5}}) * 2,
                    concat({x(slice::all(), slice::range(0, row / 2)), x * 2}, 1), roll(x, 7, 1) + 1};
          },
          cat(name(dtype), " rows of ", row));
    }
  }
}

/// What else a loop does on its way: sums, values in scratch memory, results of other widths.
TEST(LlvmLines, LoopsThatAlsoReduce) {
  const Tensor x = numbers(DType::Int32, {5000, 501}), y = numbers(DType::Int32, {5000, 501});
  expect_as_interpreted(
      [&]() -> std::vector<Tensor> {
        const Tensor z = maximum(x - 20, y), most = max(x, {1}, true);
        return {z,
                sum(z, {1}),
                max(x * y, {1}),
                (x - most) * sum(x - most, {1}, true),
                (x - most).astype(DType::Float64),
                argmax(x - y, 1)};
      },
      "rows of 501");
}

/// Loops of long bodies have one for all vectors.
TEST(LlvmLines, LongBodies) {
  const Tensor x = numbers(DType::Int32, {5000, 501}), y = numbers(DType::Int32, {5000, 501});
  expect_as_interpreted(
      [&]() -> std::vector<Tensor> {
        Tensor z = x;
        for (int i = 0; i < 16; ++i) z = where(z > y, z * (i + 3), bitwise_xor(z, y)) + (y >> 1);
        return {z, max(z, {1}), cumsum(z, 0)};
      },
      "rows of 501");
}

/// Guards of outer axes alone: one long row through all axes.
TEST(LlvmLines, JoinsAlongOuterAxes) {
  for (const DType dtype : {DType::Int32, DType::Float16}) {
    const Tensor x = numbers(dtype, {3, 8191, 103}), y = numbers(dtype, {3, 7000, 103});
    expect_as_interpreted(
        [&]() -> std::vector<Tensor> {
          return {concat({x * 2, y, x}, 1), roll(x, 13, 1) + 1, pad(x, {{0, 0}, {3, 1}, {0, 0}}) * 2,
                  flip(pad(x, {{1, 0}, {3, 1}, {0, 0}}), {1, 2}) + 1};
        },
        std::string(name(dtype)));
  }
}

}  // namespace
}  // namespace kiln
