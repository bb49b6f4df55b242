// The last lanes of rows, of every width of elements: values are those of the interpreter on every
// instruction set. Numbers are small integers, so that no order of additions matters.
#include "codegen/on_target.h"
#include "needs_cpu.h"

#include <gtest/gtest.h>

#include <functional>

namespace kiln {
namespace {

using testing::bytes_of;
using testing::ConfigScope;

using Program = std::function<std::vector<Tensor>(const Tensor&)>;

void check(const Shape& shape, DType dtype, int least, const Program& program) {
  std::int64_t n = 1;
  for (const std::int64_t extent : shape) n *= extent;
  const Tensor x = ((arange(0, n, 1, DType::Int64) * 37 % 5) + least).astype(dtype).reshape(shape);
  eval({x});
  std::vector<std::vector<std::byte>> want;
  {
    const ConfigScope scope("", Mode::Interpret);
    for (const Tensor& t : program(x)) want.push_back(bytes_of(t));
  }
  for (const std::string& target : testing::different_cpu_targets()) {
    const ConfigScope scope(target);
    const std::vector<Tensor> got = program(x);
    for (std::size_t k = 0; k < got.size(); ++k)
      EXPECT_EQ(bytes_of(got[k]), want[k]) << target << " " << name(dtype) << " " << shape << ", " << k;
  }
}

constexpr DType kTypes[] = {DType::Int8, DType::BFloat16, DType::Float16, DType::Float32, DType::Float64};

TEST(LlvmTails, OfRows) {
  KILN_NEEDS_CPU();
  for (const DType dtype : kTypes)
    for (const std::int64_t row : {1, 2, 3, 5, 7, 9, 15, 17, 31, 33, 47, 63, 65, 127, 129})
      check({37, row}, dtype, 1, [](const Tensor& x) {
        return std::vector<Tensor>{x * 2, x - max(x, {1}, true), sum((x - min(x, {1}, true)), {1})};
      });
}

/// All values are below 0, or above it: a lane that is off and counts as 0 would be the greatest, or least.
TEST(LlvmTails, OfColumns) {
  KILN_NEEDS_CPU();
  for (const DType dtype : kTypes)
    for (const std::int64_t columns : {1, 3, 5, 11, 35, 70})
      for (const std::int64_t rows : {3, 29, 101, 10007}) {
        check({rows, columns}, dtype, -9,
              [](const Tensor& x) { return std::vector<Tensor>{max(x, {0}), x - max(x, {0}, true)}; });
        check({rows, columns}, dtype, 3, [](const Tensor& x) {
          const Tensor low = x - min(x, {0}, true);
          return std::vector<Tensor>{min(x, {0}), low - max(low * low, {0}, true)};
        });
      }
}

/// Loads with guards that differ between lanes, and choices between them: of rows that end inside a vector.
TEST(LlvmTails, OfRowsWithGuards) {
  KILN_NEEDS_CPU();
  for (const DType dtype : kTypes)
    for (const std::int64_t row : {3, 7, 8, 9, 13, 17, 31, 33, 47, 65, 300})
      check({19, 5, row}, dtype, 1, [](const Tensor& x) {
        const Tensor padded = pad(x, {{0, 0}, {1, 1}, {2, 1}}, -3);
        return std::vector<Tensor>{roll(x, 2, {2}) + roll(x, -1, {2}) * 2 + roll(x, 1, {1}) * 3, padded * 2,
                                   concat({x, x * 3, x}, 2),
                                   maximum(pad(padded, {{0, 0}, {-1, -1}, {-1, -2}}), x)};
      });
}

}  // namespace
}  // namespace kiln
