// The order in which operands are made: few registers are taken at once.
#include "codegen/llvm_ir_text.h"
#include "codegen/on_target.h"
#include "needs_cpu.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kiln {
namespace {

using testing::expect_as_interpreted;
using testing::llvm_ir_of;

constexpr int kOperands = 20;

/// x₀ + (x₁ + (x₂ + …)).
Tensor sum_from_the_last(const std::vector<Tensor>& x) {
  Tensor sum = x.back();
  for (std::size_t i = x.size() - 1; i-- > 0;) sum = x[i] + sum;
  return sum;
}

std::vector<Tensor> operands(DType dtype) {
  std::vector<Tensor> out;
  for (int i = 0; i < kOperands; ++i)
    out.push_back((arange(0, 3000, 1, DType::Int64) * (i + 1) % 7).astype(dtype).eval());
  return out;
}

TEST(LlvmOrder, SumsBeginBeforeAllOperandsAreLoaded) {
  KILN_NEEDS_CPU();
  const std::string text = llvm_ir_of(sum_from_the_last(operands(DType::Float32)));
  const std::size_t first_sum = text.find("fadd"), first_load = text.find("= load <");
  ASSERT_NE(first_sum, std::string::npos);
  int before = 0;
  for (std::size_t at = first_load; at < first_sum; at = text.find("= load <", at + 1)) ++before;
  EXPECT_EQ(before, 5) << "loads before the first sum: a few may wait";
}

TEST(LlvmOrder, ValuesAreTheInterpreters) {
  KILN_NEEDS_CPU();
  for (const DType dtype : {DType::Float32, DType::Float64, DType::Int16, DType::BFloat16})
    expect_as_interpreted(std::string(name(dtype)), [&] {
      const std::vector<Tensor> x = operands(dtype);
      return std::vector<Tensor>{sum_from_the_last(x), x[0] * (x[1] - sum_from_the_last(x)) + x[2]};
    });
}

}  // namespace
}  // namespace kiln
