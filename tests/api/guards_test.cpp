// Loads with guards (pads, rolls, joins) along loops of any length, and tiles of results of pairs, on every
// instruction set, against the interpreter.
#include "api/expect.h"
#include "codegen/on_target.h"
#include "modes.h"
#include "support/check.h"

#include <limits>

namespace kiln {
namespace {

Tensor numbers(DType dtype, const Shape& shape) {
  const Tensor place = arange(shape.numel(), DType::Int64);
  return (place * place * 17 % 50).astype(dtype).reshape(shape).eval();
}

template <class F>
void expect_agreement(F f, const std::string& what) {
  std::vector<Tensor> want;
  {
    const testing::ModeScope scope(Mode::Interpret);
    want = f();
    for (Tensor& t : want) t.eval();
  }
  for (const std::string& target : testing::cpu_targets()) {
    const testing::ConfigScope scope(target);
    const std::vector<Tensor> got = f();
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(array_equal(got[i], want[i], true)) << what << ", result " << i << ", KILN_CPU=" << target;
  }
}

// Around a vector of 16, 32 or 64 lanes, and several of them: guards change at their ends and inside them.
constexpr std::int64_t kLengths[] = {64, 127, 323};

TEST(Guards, PadsRollsAndJoinsOfLoopsOfAnyLength) {
  for (const DType dtype : {DType::Float64, DType::BFloat16, DType::UInt8})
    for (const std::int64_t n : kLengths) {
      const Tensor x = numbers(dtype, {3, n}), y = numbers(dtype, {3, n / 2 + 1});
      const auto at = [&](std::int64_t from) {
        return pad(x, {{0, 0}, {64, 64}})(slice::all(), slice::range(from, from + n));
      };
      expect_agreement(
          [&]() -> std::vector<Tensor> {
            return {at(63) + at(64) + at(65),
                    roll(x, 1, 1) + roll(x, -17, 1) + roll(x, 64, 1) + roll(x, 1, 0),
                    concat({x, y * 2, x}, 1) + 1,
                    concat({x, concat({y, y}, 1)}, 1),
                    flip(pad(x, {{0, 0}, {n % 64, 5}}), {1}) * 2,
                    max(pad(x, {{1, 0}, {32, 64}}), {1}),
                    slice_update(x, {slice::range(1, 3), slice::range(n / 3, n / 3 + n / 2 + 1)},
                                 y(slice::range(0, 2)))};
          },
          cat(name(dtype), " rows of ", n));
    }
}

TEST(Guards, ChoicesOfCastLoadsAndOfConditionsInPairs) {
  for (const std::int64_t n : kLengths) {
    const Tensor x = numbers(DType::Float16, {n}).eval(), y = numbers(DType::Float16, {n + 40}).eval();
    expect_agreement(
        [&]() -> std::vector<Tensor> {
          const Tensor i = arange(n, DType::Int64);
          const Tensor joined = concat({x, y, x}, 0).astype(DType::Float32);
          return {joined * 2 + 1, where((i > 40) & (i < n - 9), x, x * 3), where(i * 2 < n, x, -x),
                  where(~(i < 64), concat({x, x}, 0)(slice::range(7, 7 + n)), x)};
        },
        cat("rows of ", n));
  }
}

// Rows that share the lanes come round to the beginning of a vector again after several of them.
TEST(Guards, MapsOfShortRowsInRounds) {
  constexpr std::int64_t rows = 401;
  for (const DType dtype : {DType::Float16, DType::Int64, DType::UInt8})
    for (const std::int64_t row : {2, 5, 12}) {
      const Tensor x = numbers(dtype, {rows, 3, row}), y = numbers(dtype, {rows, 1, row});
      const Tensor per_row = numbers(dtype, {rows, 3, 1}), per_column = numbers(dtype, {3, row});
      const auto half = [&](const Tensor& t, std::int64_t from) {
        return t(slice::all(), slice::all(), slice::range(from * (row / 2), (from + 1) * (row / 2)));
      };
      const auto first = slice::range(0, row);
      expect_agreement(
          [&]() -> std::vector<Tensor> {
            return {x * 2 + y + per_row + per_column,
                    concat({half(x, 0) + half(y, 1) * 2, half(x, 1) + half(y, 0) * 3}, 2),
                    roll(x, 1, 2) + roll(x, 1, 0) * 2 +
                        pad(x, {{0, 0}, {0, 0}, {1, 0}})(slice::all(), slice::all(), first),
                    take(y, numbers(DType::Int32, {row}), 0) + x(first) + 1};
          },
          cat(name(dtype), " ", rows, " by 3 by ", row));
    }
}

// A comparison of values is none of positions: their sums wrap around.
TEST(Guards, ComparisonsOfSumsThatWrapInLoopsInsideLanes) {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const Tensor place = arange(70, DType::Int64);
  const Tensor x = where(place % 3 == 0, most - place, where(place % 3 == 1, place - most, place)).eval();
  const Tensor y = x(slice::range(0, 37)).reshape({37, 1}).eval();
  const Tensor z = numbers(DType::Int64, {37, 70});
  expect_agreement(
      [&]() -> std::vector<Tensor> {
        return {sum(where(x + y < 40, z, 0), {0}), sum(where(x - y <= y, z, 0), {0}),
                sum(where(x * 3 < y + x, z, 0), {0})};
      },
      "sums of columns");
}

TEST(Guards, TilesOfResultsOfPairs) {
  for (const std::int64_t rows : {1, 3, 4, 9})
    for (const std::int64_t columns : {31, 64, 150}) {
      const Tensor x = numbers(DType::Float32, {rows, 37, 1}), y = numbers(DType::Float32, {37, columns});
      const Tensor b = numbers(DType::BFloat16, {2, rows, 5, 1}),
                   c = numbers(DType::BFloat16, {2, 1, 5, columns});
      expect_agreement(
          [&]() -> std::vector<Tensor> {
            return {sum(abs(x - y), 1),
                    max(x * y, 1),
                    argmin(abs(x - y), 1),
                    min(b + c, 2),
                    sum(b - c, 2),
                    argmax(min(x + y, 1), 1),
                    sum(max(abs(x - y), 1), 1)};
          },
          cat(rows, " by ", columns));
    }
}

}  // namespace
}  // namespace kiln
