// Rows that an index names, from tables larger than the second cache: what later iterations read is asked for
// ahead, and values are those of the interpreter on every instruction set.
#include "codegen/llvm_ir_text.h"
#include "codegen/on_target.h"
#include "needs_cpu.h"
#include "support/check.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

namespace kiln {
namespace {

using testing::llvm_ir_of;

constexpr std::int64_t kTableBytes = 5 << 20, kIndices = 3001;  // bytes: more than any second cache has

Tensor table(DType dtype, std::int64_t bytes, std::int64_t row) {
  const std::int64_t rows = bytes / (row * size_of(dtype));
  const Tensor x = (arange(0, rows * row, 1, DType::Int64) * 37 % 251).astype(dtype).reshape({rows, row});
  eval({x});
  return x;
}

/// All over the table, from its end, and beyond it.
Tensor indices(std::int64_t rows, DType dtype) {
  const Tensor i =
      ((arange(0, kIndices, 1, DType::Int64) * 7919 % (2 * rows + 2 * 11)) - rows - 11).astype(dtype);
  eval({i});
  return i;
}

std::vector<Tensor> gathers(const Tensor& x, const Tensor& i) { return {take(x, i, 0), take(x, i, 0) * 2}; }

TEST(LlvmGather, RowsOfLargeTablesOnEveryTarget) {
  KILN_NEEDS_CPU();
  for (const DType dtype : {DType::Int8, DType::BFloat16, DType::Float32, DType::Float64})
    for (const std::int64_t row : {1, 2, 5, 7, 8, 24, 32, 33, 100, 1000}) {
      const Tensor x = table(dtype, kTableBytes, row);
      const Tensor i = indices(x.shape()[0], row % 2 ? DType::Int64 : DType::Int32);
      testing::expect_as_interpreted(cat(name(dtype), " rows of ", row), [&] { return gathers(x, i); });
    }
}

/// Every request for a place that was read from memory: the address is chosen by the guard of its index.
int requests(const std::string& text) {
  const std::regex request(R"(@llvm\.prefetch\S*\(ptr (%[\w.]+), i32 0, i32 3)");
  int found = 0;
  for (std::sregex_iterator m(text.begin(), text.end(), request), end; m != end; ++m)
    found += text.find((*m)[1].str() + " = select i1 ") != text.npos;
  return found;
}

TEST(LlvmGather, RowsOfLargeTablesAreAskedForAhead) {
  KILN_NEEDS_CPU();
  KILN_NEEDS_COMPILER();
  for (const std::int64_t row : {7, 32, 1000}) {
    const Tensor large = table(DType::Float16, kTableBytes, row),
                 small = table(DType::Float16, 16 << 10, row);
    const Tensor far = take(large, indices(large.shape()[0], DType::Int32), 0),
                 near = take(small, indices(small.shape()[0], DType::Int32), 0);
    EXPECT_GT(requests(llvm_ir_of(far * 2)), 0) << row;
    EXPECT_EQ(requests(llvm_ir_of(near * 2)), 0) << row;
    // many iterations that store a row as it is fit into the processor
    EXPECT_EQ(requests(llvm_ir_of(take(large, indices(large.shape()[0], DType::Int32), 0))) > 0, row == 1000)
        << row;
  }
}

}  // namespace
}  // namespace kiln
