// Short rows that share the lanes: elements of every width whose places repeat from vector to vector are
// permuted out of registers, and on every instruction set what the interpreter gives.
#include "codegen/on_target.h"
#include "needs_cpu.h"

#include <gtest/gtest.h>

#include <array>

namespace kiln {
namespace {

using testing::bytes_of;
using testing::ConfigScope;

Tensor numbered(const Shape& shape, DType dtype) {
  std::int64_t n = 1;
  for (const std::int64_t extent : shape) n *= extent;
  const Tensor x = (arange(0, n, 1, DType::Int64) * 37 % 101).astype(dtype).reshape(shape);
  eval({x});
  return x;
}

/// An element for each row and one for each column, rows that go round, and a part of each row: reads of
/// one register, of two, and where a predicate holds. The last row ends its memory.
std::vector<Tensor> of_short_rows(std::int64_t rows, std::int64_t m, std::int64_t n, DType dtype) {
  const Tensor x = numbered({rows, m, n}, dtype), down = numbered({rows, m, 1}, dtype),
               across = numbered({rows, 1, n}, dtype);
  const Tensor part = x(range(none, none), range(none, none), range(1, none));
  return {maximum(maximum(x, down), across), maximum(x, roll(x, 1, 2)), minimum(flip(x, 2), across),
          maximum(x, pad(part, {{0, 0}, {0, 0}, {1, 0}})), maximum(x, pad(part, {{0, 0}, {0, 0}, {0, 1}}))};
}

TEST(LlvmWindows, ShortRowsOnEveryTarget) {
  KILN_NEEDS_CPU();
  for (const DType dtype : {DType::Int8, DType::UInt8, DType::Float16, DType::Int32, DType::Float64})
    for (const auto& [rows, m, n] :
         {std::array<std::int64_t, 3>{1003, 8, 4}, {1024, 3, 5}, {777, 7, 3}, {129, 61, 2}, {300, 1, 6}}) {
      std::vector<std::vector<std::byte>> want;
      {
        const ConfigScope scope("", Mode::Interpret);
        for (const Tensor& t : of_short_rows(rows, m, n, dtype)) want.push_back(bytes_of(t));
      }
      for (const std::string& target : testing::different_cpu_targets()) {
        const ConfigScope scope(target);
        const std::vector<Tensor> got = of_short_rows(rows, m, n, dtype);
        for (std::size_t k = 0; k < got.size(); ++k)
          EXPECT_EQ(bytes_of(got[k]), want[k])
              << target << " " << name(dtype) << " " << rows << "x" << m << "x" << n << ", program " << k;
      }
    }
}

}  // namespace
}  // namespace kiln
