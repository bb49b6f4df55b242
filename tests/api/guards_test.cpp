// Loads with guards (pads, rolls, joins) along loops of any length, and tiles of results of pairs, on every
// instruction set, against the interpreter.
#include "api/expect.h"
#include "codegen/on_target.h"
#include "modes.h"
#include "support/check.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
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
  for (const std::string& target : testing::different_cpu_targets()) {
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

// Rows of some vectors are the lanes' loop, and the loops over rows are inside it: guards along a row, along
// the axes before it and along both, in grid items at every border and far from all of them.
TEST(Guards, LoopsOverRowsInsideLanes) {
  for (const DType dtype : {DType::Float32, DType::Float16})
    for (const std::int64_t row : {16, 23, 72, 131}) {
      const Tensor x = numbers(dtype, {61, 5, row}), y = numbers(dtype, {61, 5, row / 2}) % 8;
      const auto part = [&](std::int64_t from, std::int64_t to) {
        return x(slice::all(), slice::all(), slice::range(from, to));
      };
      expect_agreement(
          [&]() -> std::vector<Tensor> {
            return {concat({y, x, y * 2, part(0, 3)}, 2),
                    concat({x, y.reshape({61, row / 2, 5}).reshape({61, 5, row / 2})}, 2) + 1,
                    roll(x, 3, 2) + roll(x, 1, 1) * 2 + roll(x, -7, 0) * 3,
                    pad(x, {{2, 1}, {1, 0}, {3, 5}}) * 2,
                    slice_update(x, {slice::range(20, 41), slice::range(1, 4), slice::range(2, 2 + row / 2)},
                                 y(slice::range(0, 21), slice::range(0, 3))),
                    concat({part(0, row / 2) * y - part(row / 2, row / 2 * 2) * y,
                            part(row / 2, row / 2 * 2) + part(0, row / 2) * y},
                           2),
                    take(x.reshape({305, row}), numbers(DType::Int32, {977}) % 305, 0) * 2};
          },
          cat(name(dtype), " rows of ", row));
    }
}

// Elements that lie apart: those of a vector in one register, in two, and further away than that; with rows
// that share the lanes and whole rows on them.
TEST(Guards, WindowsOfEveryReach) {
  for (const DType dtype : {DType::Float32, DType::Float16})
    for (const std::int64_t side : {7, 14, 61})
      for (const std::int64_t step : {1, 2, 3}) {
        const Tensor first = numbers(dtype, {37, 3, side, side}), last = numbers(dtype, {37, side, side, 3});
        const std::int64_t count = (side - 3) / step + 1;
        const auto tap = [&](std::int64_t i) { return slice::range(i, i + (count - 1) * step + 1, step); };
        expect_agreement(
            [&]() -> std::vector<Tensor> {
              Tensor a = first(slice::all(), slice::all(), tap(0), tap(0));
              Tensor b = last(slice::all(), tap(0), tap(0), slice::all());
              for (std::int64_t i = 0; i < 3; ++i)
                for (std::int64_t j = 0; j < 3; ++j) {
                  a = maximum(a, first(slice::all(), slice::all(), tap(i), tap(j)));
                  b = b + last(slice::all(), tap(i), tap(j), slice::all());
                }
              return {a, b};
            },
            cat(name(dtype), " pictures of ", side, ", every ", step));
      }
}

// A guard that changes in the middle of the loop over rounds, or does not change in any of a grid item.
TEST(Guards, RowsThatShareTheLanesBesideGuardsAlongOuterAxes) {
  for (const DType dtype : {DType::Float32, DType::BFloat16})
    for (const std::int64_t row : {1, 3, 9}) {
      const Tensor x = numbers(dtype, {3, 1500, row}), y = numbers(dtype, {3, 700, row});
      expect_agreement(
          [&]() -> std::vector<Tensor> {
            return {pad(x, {{1, 0}, {9, 640}, {1, 0}}) * 2,
                    roll(x, 733, 1) + roll(x, 1, 2),
                    concat({y * 2, x, y}, 1),
                    slice_update(x, {slice::range(1, 3), slice::range(411, 1111), slice::all()},
                                 y(slice::range(0, 2))),
                    permute_dims(x, {1, 0, 2}) + 1,
                    flip(x, {1}) * 2};
          },
          cat(name(dtype), " rows of ", row));
    }
}

// Joins along an outer axis and updates of whole rows: a choice that is the same for all lanes reads one
// operand.
TEST(Guards, ChoicesThatAreEqualOnAllLanes) {
  for (const DType dtype : {DType::Float32, DType::UInt8})
    for (const std::int64_t row : {33, 5000}) {
      const Tensor x = numbers(dtype, {4, row}), y = numbers(dtype, {2, row}), z = numbers(dtype, {3, row});
      expect_agreement(
          [&]() -> std::vector<Tensor> {
            return {concat({x, y * 2, z, y + 1}, 0), concat({y, x, concat({z, y * 3}, 0)}, 0) * 2,
                    slice_update(x, {slice::range(1, 3), slice::all()}, y * 2), roll(x, 1, 0) * 2,
                    roll(x, 1, 0) + roll(x, 5, 1)};
          },
          cat(name(dtype), " rows of ", row));
    }
}

// Results of few columns have more rows in a tile; those of large results go past the caches.
TEST(Guards, PairsOfFewColumnsAndLargeResults) {
  for (const std::int64_t columns : {16, 20, 33})
    for (const std::int64_t rows : {5, 16, 1030}) {
      const std::int64_t k = rows > 1000 ? 300 : 40;
      const Tensor x = numbers(DType::Float32, {rows, 1, k}), y = numbers(DType::Float32, {columns, k});
      expect_agreement(
          [&]() -> std::vector<Tensor> {
            return {max(abs(x - y), {2}), min(x * y, {2}), argmin(sum(abs(x - y), {2}), 1)};
          },
          cat(rows, " by ", columns));
    }
  const Tensor x = numbers(DType::Int32, {4100, 1, 2}), y = numbers(DType::Int32, {1040, 2});
  expect_agreement([&]() -> std::vector<Tensor> { return {max(x - y, {2})}; }, "a large result");
}

/// The same array at the end or at the beginning of pages beside which there are none.
Tensor at_the_edge(const Tensor& values, bool at_end) {
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE)),
                    bytes = static_cast<std::size_t>(values.numel() * size_of(values.dtype())),
                    inside = (bytes + page - 1) / page * page, all = inside + 2 * page;
  void* const memory = mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  KILN_CHECK_THAT(memory != MAP_FAILED);
  auto* const first = static_cast<std::byte*>(memory) + page;
  std::byte* const data = at_end ? first + (inside - bytes) : first;
  std::memcpy(data, values.data(), bytes);
  mprotect(memory, page, PROT_NONE);
  mprotect(first + inside, page, PROT_NONE);
  return Tensor::borrow(data, values.shape(), values.dtype(),
                        [memory, all](const void*) { munmap(memory, all); });
}

TEST(Guards, NothingBeyondAnArrayIsRead) {
  for (const DType dtype : {DType::Float32, DType::Float16})
    for (const std::int64_t row : {3, 6, 45})
      for (const bool at_end : {false, true}) {
        const Tensor x = at_the_edge(numbers(dtype, {128, 4, row}), at_end);
        expect_agreement(
            [&]() -> std::vector<Tensor> {
              return {concat({x, x * 2}, 2),
                      roll(x, 1, 2) + roll(x, 3, 0) + roll(x, -1, 1),
                      pad(x, {{1, 2}, {1, 1}, {2, 1}}) * 2,
                      x(slice::all(), slice::all(), slice::range(0, row, 2)) + 1,
                      permute_dims(x, {1, 0, 2}) * 2,
                      flip(x, {0, 2}) * 2,
                      take(x.reshape({512, row}), numbers(DType::Int32, {700}) % 512, 0) + 1,
                      max(x, {0})};
            },
            cat(name(dtype), " rows of ", row));
      }
}

// Elements that the lanes of a loop take at places of their own in each row, of windows of every width, and
// rows that leave lanes idle. Halves that are multiplied and joined choose by conditions that a loop inside
// does not change.
TEST(Guards, WindowsOfEveryWidthBesideMissingPages) {
  for (const DType dtype : {DType::UInt8, DType::Float16, DType::Float32, DType::Float64})
    for (const std::int64_t row : {1, 5, 12, 40})
      for (const bool at_end : {false, true}) {
        const Tensor x = at_the_edge((numbers(dtype, {190, 3, 2 * row}) * 3).astype(dtype), at_end);
        const Tensor w = at_the_edge(numbers(dtype, {190, 1, row}), at_end);
        const Tensor place = arange(3 * row, DType::Int32);
        const Tensor a = x(slice::all(), slice::all(), slice::range(0, row)),
                     b = x(slice::all(), slice::all(), slice::range(row, 2 * row));
        const Tensor even = x(slice::all(), slice::all(), slice::range(0, 2 * row, 2)),
                     odd = x(slice::all(), slice::all(), slice::range(1, 2 * row, 2));
        expect_agreement(
            [&]() -> std::vector<Tensor> {
              const auto pairs = [&](const Tensor& p, const Tensor& q) {
                return std::vector<Tensor>{expand_dims(p, -1), expand_dims(q, -1)};
              };
              return {
                  take(x, floor_divide(place, 2), 2) + take(x, (place * 2) % (2 * row), 2),
                  take(x, floor_divide(place, 5) - row, 2) + take(x, 2 * row - 1 - floor_divide(place, 2), 2),
                  take(take(x, floor_divide(arange(300, DType::Int32), 2), 0), floor_divide(place, 3), 2) * 2,
                  concat({a + w, b - w}, 2),
                  concat({a - b, a + b}, 2) + 1,
                  concat(pairs(even + w, odd - w), 3).reshape({190, 3, 2 * row}),
                  max(x, {0, 1}),
                  max(x - max(x, {0}, true), {0}),
                  pad(x, {{2, 1}, {1, 0}, {1, row}}) + 1};
            },
            cat(name(dtype), " rows of ", 2 * row));
      }
}

}  // namespace
}  // namespace kiln
