// Loops whose loads may be absent (a pad) or are of one of two parts (a roll): most of their vectors have a
// body that asks for nothing, and values are the interpreter's on every instruction set.
#include "codegen/llvm_ir_text.h"
#include "codegen/on_target.h"
#include "needs_cpu.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

using testing::count_of;
using testing::expect_as_interpreted;
using testing::llvm_ir_of;

constexpr const char* kWithoutConditions = "\\nthere[0-9]*:";

Tensor numbers(const Shape& shape, DType dtype = DType::Float32) {
  return (arange(0, shape.numel(), 1, DType::Int64) * 37 % 7).astype(dtype).reshape(shape).eval();
}

/// The sum of neighbours up to `radius` away along both axes, of a number beyond the border or from around
/// it.
Tensor stencil(const Tensor& x, std::int64_t radius, bool around, int beyond = 0) {
  const std::int64_t rows = x.dim(0), columns = x.dim(1);
  const Tensor wide = around ? x : pad(x, {{radius, radius}, {radius, radius}}, beyond);
  const auto moved = [&](std::int64_t down, std::int64_t right) {
    if (around) return down ? roll(x, down, 0) : roll(x, right, 1);
    return wide(slice::range(radius + down, radius + down + rows),
                slice::range(radius + right, radius + right + columns));
  };
  Tensor sum = x * 2;
  for (std::int64_t by = -radius; by <= radius; ++by)
    if (by) sum = sum + moved(by, 0) + moved(0, by);
  return sum;
}

TEST(LlvmThere, BordersAreAskedForOnceForManyVectors) {
  KILN_NEEDS_CPU();
  const Tensor x = numbers({7, 3001});
  EXPECT_GE(count_of(llvm_ir_of(stencil(x, 1, false)), kWithoutConditions), 1);
  EXPECT_GE(count_of(llvm_ir_of(stencil(x, 1, true)), kWithoutConditions), 1);
  EXPECT_EQ(count_of(llvm_ir_of(pad(x, {{1, 1}, {1, 1}}) * 2), kWithoutConditions), 0) << "a single load";
  EXPECT_EQ(count_of(llvm_ir_of(concat({x, x * 2, x, x}, 1) + 1), kWithoutConditions), 0)
      << "never all parts";
}

/// Of a roll by one the part from the other end is one element, which the vectors between the ends have not.
TEST(LlvmThere, SingleElementsFromTheOtherEndAreReadAtTheEndsAlone) {
  KILN_NEEDS_CPU();
  const std::string text = llvm_ir_of(stencil(numbers({7, 3001}), 1, true));
  const std::size_t there = text.find("\nthere"), begin = text.find("\nlanes", there),
                    end = text.find("\nlanes", begin + 1);
  ASSERT_NE(end, std::string::npos);
  const std::string body = text.substr(begin, end - begin);
  EXPECT_GE(count_of(body, "= load <"), 5);
  EXPECT_EQ(count_of(body, "= load float"), 0);
}

/// What is beyond the border is in memory: where rows differ in what is there, no load has a branch.
TEST(LlvmThere, WhatPadsAnArrayIsChosenByItsAddress) {
  KILN_NEEDS_CPU();
  constexpr const char* kChosen = "select i1 %[^,]*, ptr %[^,]*, ptr %[0-9]+\n";
  EXPECT_GE(count_of(llvm_ir_of(stencil(numbers({7, 3001}), 2, false, 3)), kChosen), 8);
}

TEST(LlvmThere, ValuesAreTheInterpreters) {
  KILN_NEEDS_CPU();
  for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float64, DType::UInt8})
    for (const Shape& shape : {Shape{1, 400}, Shape{6, 611}, Shape{64, 64}, Shape{300, 61}, Shape{501, 6}})
      for (const std::int64_t radius : {1, 2})
        for (const bool around : {false, true}) {
          if (around && shape[0] == 1) continue;
          expect_as_interpreted(std::string(name(dtype)) + " columns " + std::to_string(shape[1]), [&] {
            const Tensor x = numbers(shape, dtype);
            return std::vector<Tensor>{stencil(x, radius, around, static_cast<int>(radius) - 1)};
          });
        }
}

}  // namespace
}  // namespace kiln
