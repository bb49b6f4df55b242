// Elements that an index finds near each other: lanes that skip some, or go on in another row, are read as
// pieces of adjacent memory, and values are those of the interpreter on every instruction set.
#include "codegen/llvm_ir_text.h"
#include "codegen/on_target.h"
#include "needs_cpu.h"
#include "support/check.h"

#include <kiln/layers.h>

#include <gtest/gtest.h>

#include <vector>

namespace kiln {
namespace {

using testing::count_of;
using testing::llvm_ir_of;

Tensor images(DType dtype, const Shape& shape) {
  const Tensor x = (arange(0, shape.numel(), 1, DType::Int64) * 37 % 251).astype(dtype).reshape(shape);
  eval({x});
  return x;
}

struct Case {
  Shape shape, size;
  nn::Interpolation how = nn::Interpolation::Nearest;
};

TEST(LlvmPieces, RowsAndColumnsInBetweenOnEveryTarget) {
  KILN_NEEDS_CPU();
  constexpr auto kLinear = nn::Interpolation::Linear;  // of which no weight is rounded
  const Case cases[] = {
      {{40, 2, 28, 28}, {14, 28}},  // every other row: lanes go on behind the end of one
      {{40, 2, 28, 28}, {14, 28}, kLinear},
      {{40, 2, 28, 28}, {28, 20}},  // more than one register of elements
      {{40, 2, 28, 28}, {14, 20}},
      {{40, 2, 28, 28}, {56, 14}, kLinear},
      {{300, 1, 7, 7}, {3, 7}},  // three rows and more
      {{300, 1, 7, 7}, {3, 14}},
      {{300, 1, 7, 7}, {7, 14}, kLinear},
      {{40, 2, 30, 30}, {28, 6}},  // few of them
      {{40, 1, 61, 61}, {45, 141}},
      {{7, 3, 5, 2001}, {5, 2747}},
      {{2, 3, 5, 4096}, {5, 300}},
      {{10, 1, 200, 300}, {97, 40}},
  };
  for (const auto& [shape, size, how] : cases)
    for (const DType dtype : {DType::BFloat16, DType::Float32, DType::Float64}) {
      const Tensor x = images(dtype, shape);
      testing::expect_as_interpreted(cat(name(dtype), " of ", shape.numel(), " to ", size[0], " x ", size[1]),
                                     [&] { return std::vector{nn::interpolate(x, size, how)}; });
    }
}

TEST(LlvmPieces, ElementsApartOnEveryTarget) {
  KILN_NEEDS_CPU();
  for (const DType dtype : {DType::Int8, DType::BFloat16, DType::Float32, DType::Float64})
    for (const std::int64_t row : {2, 3, 4, 5, 9}) {
      const Tensor x = images(dtype, {5003, row});
      testing::expect_as_interpreted(cat(name(dtype), " rows of ", row), [&] {
        return std::vector<Tensor>{x.T() + x.reshape({row, 5003}), x(all(), range(1, 2)) * 2};
      });
    }
}

// Lanes are rows of a few elements, or every other element: their places are the same in all vectors.
TEST(LlvmPieces, ShortSumsOnEveryTarget) {
  KILN_NEEDS_CPU();
  for (const DType dtype : {DType::Int16, DType::BFloat16, DType::Float32, DType::Float64})
    for (const std::int64_t row : {2, 3, 4, 7})
      for (const std::int64_t rows : {37, 5003}) {
        const Tensor x = images(dtype, {rows, row}) % 8, y = images(dtype, {row, rows, 2});
        eval({x, y});
        testing::expect_as_interpreted(cat(name(dtype), " sums of ", row, ", ", rows, " rows"), [&] {
          return std::vector<Tensor>{max(x * flip(x, 0), {1}), min(x, {1}), max(flip(x, 0) - x, {1}),
                                     max(y(all(), all(), 1), {0}), max(flip(y, 1)(all(), all(), 0), {0})};
        });
      }
}

// Whether a row is there is asked once for the rows of an item, and again for each where it changes among
// them.
TEST(LlvmPieces, RowsThatWrapAroundOnEveryTarget) {
  KILN_NEEDS_CPU();
  for (const DType dtype : {DType::BFloat16, DType::Float32})
    for (const Shape& shape : {Shape{5003, 25}, Shape{40, 25}, Shape{3, 5003, 25}, Shape{700, 40}}) {
      const Tensor x = images(dtype, shape) % 16;
      eval({x});
      const std::int64_t rows = x.rank() - 2, along = x.rank() - 1;
      testing::expect_as_interpreted(cat(name(dtype), " of ", shape.numel()), [&] {
        return std::vector<Tensor>{
            roll(x, 2, rows) + roll(x, -1, rows) + roll(x, 1, along) + roll(x, -2, along),
            x - roll(x, 1, 0) + roll(x, -7, rows)};
      });
    }
}

// Both rows are asked for an item ahead, since each has lines of its own; places of a small image are not.
TEST(LlvmPieces, ImagesAreAskedForAnItemAhead) {
  KILN_NEEDS_CPU();
  KILN_NEEDS_COMPILER();
  constexpr const char* kAhead = R"(@llvm\.prefetch\S*\(ptr %[\w.]+, i32 0, i32 2)";
  const auto requests = [&](std::int64_t n) {
    return count_of(llvm_ir_of(nn::interpolate(images(DType::Float32, {n, 1, 28, 28}), {14, 28})), kAhead);
  };
  EXPECT_GE(requests(8000), 2);
  EXPECT_EQ(requests(10), 0);
}

// Two pieces of a register: a permutation of two, and a gather only where lanes are in more than four.
TEST(LlvmPieces, EveryOtherRowIsPermuted) {
  KILN_NEEDS_CPU();
  KILN_NEEDS_COMPILER();
  if (!cpu::host_target("native").avx512) GTEST_SKIP() << "no registers of masks";
  const std::string text = llvm_ir_of(nn::interpolate(images(DType::Float32, {400, 1, 28, 28}), {14, 28}));
  EXPECT_GE(count_of(text, R"(call <16 x i32> @llvm\.x86\.avx512\.vpermi2var)"), 2);
}

// A row of pairs is a lane: which elements the lanes read is found once, not in each vector.
TEST(LlvmPieces, PlacesThatNeverChangeAreFoundOnce) {
  KILN_NEEDS_CPU();
  KILN_NEEDS_COMPILER();
  if (!cpu::host_target("native").avx512) GTEST_SKIP() << "no registers of masks";
  const Tensor x = images(DType::Float32, {50000, 2});
  const std::string text = llvm_ir_of(max(x, {1}));
  EXPECT_GT(count_of(text, R"(@llvm\.x86\.avx512\.(vpermi2var|permvar))"), 0);
  EXPECT_EQ(count_of(text.substr(text.find("loop:")), R"(call [^\n]*@llvm\.vector\.reduce)"), 0);
}

// A loop of many loads keeps an index, and one of few a pointer for each.
TEST(LlvmPieces, ManyLoadsHaveOneIndex) {
  KILN_NEEDS_CPU();
  KILN_NEEDS_COMPILER();
  const Tensor x = images(DType::Float32, {50000, 25});
  Tensor sum = x;
  for (const std::int64_t by : {1, 2, 3, -1, -2, -3}) sum = sum + roll(x, by, 0);
  EXPECT_GT(count_of(llvm_ir_of(sum), R"(asm "")"), 0);
  EXPECT_EQ(count_of(llvm_ir_of(roll(x, 1, 0) + x), R"(asm "")"), 0);
}

}  // namespace
}  // namespace kiln
