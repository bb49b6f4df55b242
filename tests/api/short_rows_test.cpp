// Short rows and narrow elements: what lanes gather, cast and combine, on every instruction set, against the
// interpreter.
#include "api/expect.h"
#include "codegen/on_target.h"
#include "modes.h"
#include "support/check.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>

namespace kiln {
namespace {

using testing::kInf;
using testing::kNan;

/// Numbers with many ties; floats with NaN, infinities and zeros of both signs among them if `special`.
Tensor numbers(DType dtype, const Shape& shape, bool special) {
  const Tensor place = arange(shape.numel(), DType::Int64);
  const Tensor mixed = (place * 7919 + place / 3 * 104729) % 1013;
  Tensor x = is_float(dtype) ? (mixed.astype(DType::Float32) - 500) / 8 : mixed % 100;
  if (special && is_float(dtype)) {
    x = where(mixed % 17 == 0, -kInf, x);
    x = where(mixed % 61 == 1, kInf, x);
    x = where(mixed % 71 == 2, kNan, x);
    x = where(mixed % 11 == 3, -0.0, x);
  }
  return x.astype(dtype).reshape(shape).eval();
}

/// f's results agree with the interpreter's on every target: exactly, NaN being equal, or within `tolerance`.
template <class F>
void expect_agreement(F f, const std::string& what, double tolerance = 0) {
  Tensor want;
  {
    const testing::ModeScope scope(Mode::Interpret);
    want = f().eval();
  }
  for (const std::string& target : testing::different_cpu_targets()) {
    const testing::ConfigScope scope(target);
    const Tensor got = f().eval();
    ASSERT_EQ(got.dtype(), want.dtype());
    const bool equal =
        tolerance == 0 ? array_equal(got, want, true) : allclose(got, want, tolerance, tolerance, true);
    EXPECT_TRUE(equal) << what << " on KILN_CPU=" << target;
  }
}

constexpr std::int64_t kLengths[] = {1, 3, 8, 15, 17, 24, 33, 64, 131};

/// Tiles some of whose lines are shorter than a register.
TEST(ShortRows, TransposedBesideLongAxes) {
  for (const DType dtype : {DType::UInt8, DType::Float16, DType::Float32, DType::Float64})
    for (const std::int64_t n : {2, 3, 7, 14, 15, 17})
      for (const std::int64_t m : {9, 40}) {
        const Tensor x = numbers(dtype, {2, 33, m, n}, true), y = numbers(dtype, {2, n, 33, m}, true);
        const auto what = cat(name(dtype), " (", m, ", ", n, ")");
        expect_agreement([&] { return permute_dims(x, {0, 3, 1, 2}) + y; }, what);
        expect_agreement([&] { return permute_dims(x, {3, 2, 0, 1}) * 2; }, what + ", of rows turned too");
      }
}

/// Several rows share a register, whose lanes find positions of their own.
TEST(ShortRows, PositionsDownFewColumnsOfEveryDtype) {
  for (int d = 0; d < kDTypeCount; ++d)
    for (const std::int64_t columns : {2, 7})
      for (const std::int64_t rows : {61, 4099}) {
        const auto dtype = static_cast<DType>(d);
        const Tensor x = numbers(dtype, {rows, columns}, true);
        const auto what = cat(name(dtype), " (", rows, ", ", columns, ")");
        expect_agreement([&] { return argmax(x, 0); }, "argmax of " + what);
        expect_agreement([&] { return argmin(where(x == x, x, x), 0) + argmax(x, 0); }, "both of " + what);
      }
}

TEST(ShortRows, PositionsDownManyRowsOfFewColumns) {
  constexpr std::int64_t kRows = 400'003;  // in chunks, the last of them short
  const Tensor row = arange(kRows, DType::Int64).reshape({kRows, 1}), column = arange(3, DType::Int64);
  for (const DType dtype : {DType::Float16, DType::Float32, DType::Float64, DType::Int32})
    for (const std::int64_t best : {std::int64_t{0}, std::int64_t{29}, kRows / 2, kRows - 1}) {
      const auto what = cat(name(dtype), ", the best at ", best);
      const Tensor tied = where(row < best, 1, 2) + column * 0;  // equal from `best` on
      const Tensor x = tied.astype(dtype).eval();
      expect_agreement([&] { return argmax(x, 0); }, what);
      expect_agreement([&] { return argmin(0 - x * 3, 0); }, what + ", of a map");
      expect_agreement([&] { return argmax(x, 0) + max(x, 0).astype(DType::Int64); },
                       what + ", with the value");
      if (!is_float(dtype)) continue;
      const Tensor odd = where((row == best) & (column == 1), kNan, where(column == 2, -kInf, x)).eval();
      expect_agreement([&] { return argmax(odd, 0); }, what + ", of a NaN");
    }
}

/// Every length of one dtype of each size, of the others each third length, in turn.
TEST(ShortRows, ReductionsAndPositionsOfEveryDtype) {
  for (int d = 0; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    const bool all = std::getenv("KILN_TEST_LONG") || dtype == DType::UInt8 || dtype == DType::Float16 ||
                     dtype == DType::Float32 || dtype == DType::Int64;
    for (std::size_t i = all ? 0 : static_cast<std::size_t>(d) % 3; i < std::size(kLengths);
         i += all ? 1 : 3) {
      const std::int64_t n = kLengths[i];
      const auto what = cat(name(dtype), " rows of ", n);
      const Tensor x = numbers(dtype, {171, n}, true);
      expect_agreement([&] { return argmax(x, 1); }, "argmax of " + what);
      expect_agreement([&] { return argmin(x, 1); }, "argmin of " + what);
      expect_agreement([&] { return argmax(x.T(), 0); }, "argmax of columns, " + what);
      expect_agreement([&] { return max(x, 1); }, "max of " + what);
    }
  }
}

/// So many that threads have bunches of them.
TEST(ShortRows, PositionsOfManyRows) {
  for (const DType dtype : {DType::UInt8, DType::Int64, DType::Float16, DType::Float32, DType::Float64})
    for (const std::int64_t n : {9, 16, 17, 36, 45, 63}) {
      const auto what = cat(name(dtype), " rows of ", n);
      const Tensor x = numbers(dtype, {4099, n}, true);
      expect_agreement([&] { return argmax(x, 1); }, "argmax of " + what);
      expect_agreement([&] { return argmin(x, 1); }, "argmin of " + what);
      expect_agreement([&] { return sum(x.astype(DType::Float64), 1) + argmax(x, 1); }, what, 1e-12);
    }
}

TEST(ShortRows, LogsumexpWithInfinitiesOfEveryLength) {
  for (const DType dtype : {DType::Float16, DType::BFloat16, DType::Float32, DType::Float64})
    for (const std::int64_t n : kLengths) {
      const double tolerance = dtype == DType::Float64 ? 1e-14 : dtype == DType::Float32 ? 2e-6 : 1e-2;
      const auto what = cat(name(dtype), " rows of ", n);
      const Tensor finite = numbers(dtype, {171, n}, false), x = numbers(dtype, {171, n}, true);
      const Tensor low = where(isnan(x) | (x == kInf), -kInf, x).eval();
      for (const Tensor& values : {finite, x, low}) {
        expect_agreement([&] { return logsumexp(values, 1); }, "logsumexp of " + what, tolerance);
        expect_agreement([&] { return logsumexp(values, 0); }, "of columns, " + what, tolerance);
        expect_agreement([&] { return logcumsumexp(values, 1); }, "logcumsumexp of " + what, tolerance);
        expect_agreement([&] { return logcumsumexp(values, 0); }, "of columns, " + what, tolerance);
      }
      expect_agreement([&] { return logsumexp(numbers(dtype, {3, 700, n % 7 + 1}, true), 1); },
                       cat(what, ": few columns"), tolerance);
    }
}

/// The greatest of absolute values is found by their bits: NaN of either sign beside infinities, rows of
/// nothing else, and rows of zeros.
TEST(ShortRows, GreatestMagnitudesKeepEveryNaN) {
  for (const DType dtype : {DType::Float16, DType::Float32, DType::Float64})
    for (const std::int64_t n : kLengths)
      for (const bool special : {false, true}) {
        const auto what = cat(name(dtype), " rows of ", n);
        const Tensor x = numbers(dtype, {171, n}, special), y = numbers(dtype, {6, n}, false);
        for (const Tensor& values : {x, (-x).eval(), (x * 0).eval()}) {
          expect_agreement([&] { return max(abs(values), 1); }, what);
          expect_agreement([&] { return max(abs(values), 0); }, "columns, " + what);
          expect_agreement([&] { return max(abs(values)); }, "all, " + what);
          expect_agreement([&] { return max(abs(values.reshape({171, 1, n}) - y), 2); }, "pairs, " + what,
                           1e-2);
        }
      }
}

/// Halves are compared by their bits, and relative to a maximum of any size: all below zero, all from zero
/// on, both, and so large that others do not count. Results are Float32, and as near as a rounding of the
/// maximum.
TEST(ShortRows, LogsumexpOfHalvesOfEveryMagnitude) {
  for (const DType dtype : {DType::Float16, DType::BFloat16})
    for (const double centre : {0.0, -70.0, 70.0, 1000.0, -60000.0, 3e5, -1e30, 3.3e38}) {
      if (dtype == DType::Float16 && std::abs(centre) > 60000) continue;
      const double spread = std::max(std::abs(centre) / 100, 8.0);
      const Tensor near = numbers(DType::Float32, {37, 1300}, false) / 70 * spread + centre;
      const Tensor x = near.astype(dtype).eval();
      const Tensor greatest = max(abs(x.astype(DType::Float64)), 1, true);
      expect_agreement([&] { return logsumexp(x.astype(DType::Float32), 1, true) / maximum(greatest, 1.0); },
                       cat(name(dtype), " near ", centre), 4e-7);
    }
}

/// Columns whose sums of exponentials wait in memory, in chunks or not, and those of few elements; NaN and
/// infinities among them.
TEST(ShortRows, LogsumexpOfColumns) {
  struct Case {
    Shape shape;
    std::vector<int> axes;
  };
  const Case cases[] = {{{300, 600}, {0}}, {{3000, 70}, {0}}, {{3, 90, 301}, {1}},
                        {{40, 9000}, {0}}, {{2, 5003}, {0}},  {{5, 31, 130}, {0, 1}}};
  for (const DType dtype : {DType::BFloat16, DType::Float32, DType::Float64})
    for (const auto& [shape, axes] : cases) {
      const double tolerance = dtype == DType::Float64 ? 1e-13 : dtype == DType::Float32 ? 4e-6 : 2e-2;
      const auto what = cat(name(dtype), " ", shape.str());
      const Tensor finite = numbers(dtype, shape, false), x = numbers(dtype, shape, true);
      const Tensor low = where(isnan(x) | (x == kInf), -kInf, x).eval();
      for (const Tensor& values : {finite, x, low})
        expect_agreement([&] { return logsumexp(values, axes); }, what, tolerance);
      const Tensor wide = finite.astype(is_half(dtype) ? DType::Float32 : dtype).eval();
      expect_agreement([&] { return wide - logsumexp(wide * 2, axes, true) + max(wide, axes, true); },
                       "two results a column, " + what, 1e-4);
    }
}

/// Maps that take longer than their operands from memory, of rows that leave lanes idle.
TEST(ShortRows, LongBodies) {
  for (const DType dtype : {DType::BFloat16, DType::Float32})
    for (const std::int64_t n : {16, 17, 18, 33, 47, 65, 200}) {
      const Tensor x = numbers(dtype, {300, n}, false), column = numbers(dtype, {n}, false),
                   row = numbers(dtype, {300, 1}, false);
      expect_agreement([&] { return tanh(gelu(x / 64 + column / 50) + row / 70); },
                       cat(name(dtype), " rows of ", n), dtype == DType::Float32 ? 1e-5 : 2e-2);
    }
}

/// Elements that lie apart, from places that begin anywhere in a word, with lanes that are off.
TEST(ShortRows, GatheredElementsOfEveryDtype) {
  for (int d = 0; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    const Tensor x = numbers(dtype, {67, 45}, false);
    for (const std::int64_t first : {0, 1, 3})
      for (const std::int64_t step : {2, 7}) {
        const auto what = cat(name(dtype), " from ", first, " by ", step);
        const auto part = [&] { return x(range(first, none), range(first, none, step)); };
        const Tensor rest = numbers(dtype, part().shape(), false),
                     chosen = numbers(DType::Bool, rest.shape(), false);
        expect_agreement([&] { return where(chosen, part(), rest); }, what);
        expect_agreement([&] { return pad(where(chosen, rest, part()), {{1, 2}, {0, 3}}); },
                         "padded, " + what);
        expect_agreement([&] { return concat({part().T(), rest.T()}, 1); }, "transposed, " + what);
      }
    for (const std::int64_t n : {1, 15, 17, 40}) {
      const Tensor table = numbers(dtype, {29, n}, false), at = (arange(300) * 7) % 40 - 5;
      const auto what = cat(name(dtype), ", taken rows of ", n);
      expect_agreement([&] { return take(table, at, 0); }, what);
      expect_agreement([&] { return take(table, at, 0).astype(DType::Float32) * 2; }, what);
      expect_agreement([&] { return roll(table, 1, 1); }, "rolled " + what);
      expect_agreement([&] { return where(table == roll(table, 1, 0), table, flip(table, 1)); },
                       "flipped " + what);
    }
  }
}

/// Floats around the bounds of every integer type, and what is no number.
TEST(ShortRows, CastsOfEveryFloatToEveryInteger) {
  std::vector<double> bounds{0.0, -0.0, 0.5, -0.5, 0.999, -0.999, 1e300, -1e300, 5e-324, kInf, -kInf, kNan};
  for (const int bits : {7, 8, 15, 16, 31, 32, 63, 64})
    for (const double at : {std::ldexp(1.0, bits), -std::ldexp(1.0, bits)})
      for (const double towards : {-HUGE_VAL, HUGE_VAL})
        for (const double x :
             {at, std::nextafter(at, towards), at + std::copysign(1.0, towards),
              static_cast<double>(std::nextafter(static_cast<float>(at), static_cast<float>(towards)))})
          bounds.push_back(x);
  for (int i = 0; i < 200; ++i) bounds.push_back((i - 100) * 1.7e3);
  const Tensor all = Tensor::from(bounds);
  for (const DType from : {DType::Float16, DType::BFloat16, DType::Float32, DType::Float64})
    for (int d = 0; d < kDTypeCount; ++d) {
      const auto to = static_cast<DType>(d);
      if (!is_int(to)) continue;
      const Tensor x = all.astype(from).eval();
      expect_agreement([&] { return x.astype(to); }, cat(name(from), " to ", name(to)));
      expect_agreement([&] { return x(range(none, none, -3)).astype(to); },
                       cat(name(from), " to ", name(to)));
    }
}

TEST(ShortRows, SortsOfRowsUpToThoseThatNetworksTake) {
  for (const DType dtype : {DType::Int8, DType::BFloat16, DType::Float32, DType::Int64, DType::Float64})
    for (const std::int64_t n : {257, 500, 1024, 1025, 2048, 4096, 4097}) {
      const Tensor x = numbers(dtype, {70, n}, true);
      const auto what = cat(name(dtype), " rows of ", n);
      expect_agreement([&] { return sort(x, 1, true); }, what);
      expect_agreement([&] { return argsort(x, 1); }, what);
      expect_agreement([&] { return topk(x, 9).indices; }, what);
    }
}

/// The first of rows: blocks of as many are sorted and merged, others are left out. Rows along other axes
/// too.
TEST(ShortRows, FirstOfRowsOfEveryLength) {
  for (const DType dtype : {DType::UInt8, DType::BFloat16, DType::Float16, DType::Int32, DType::Float32,
                            DType::Int64, DType::Float64})
    for (const std::int64_t n : {1, 2, 3, 4, 5, 7, 8, 9, 16, 33, 100, 515}) {
      const Tensor x = numbers(dtype, {70, n}, true), across = numbers(dtype, {n, 67}, true);
      const auto what = cat(name(dtype), " rows of ", n);
      expect_agreement([&] { return sort(x, 1); }, "sorted " + what);
      expect_agreement([&] { return argsort(x, 1, true); }, "order of " + what);
      expect_agreement([&] { return sort(across, 0, true); }, "columns, " + what);
      for (const std::int64_t kept : {1, 2, 5, 8, 9, 32}) {
        if (kept > n) continue;
        const auto first = cat(kept, " of ", what);
        expect_agreement([&] { return topk(x, kept).values; }, first);
        expect_agreement([&] { return topk(x, kept).indices; }, "where, " + first);
        expect_agreement([&] { return topk(across, kept, 0, false).values; }, "columns, " + first);
      }
    }
}

/// Runs of elements behind the axis whose axes are walked as one, or are not.
TEST(ShortRows, ScattersOfRowsOfSeveralAxes) {
  for (const DType dtype : {DType::Float16, DType::BFloat16, DType::Float32, DType::Float64, DType::Int32})
    for (const Shape& row :
         {Shape{}, Shape{1}, Shape{5}, Shape{7}, Shape{24}, Shape{1, 3}, Shape{4, 1, 8}, Shape{2, 33}}) {
      const auto with = [&](std::int64_t n) {
        Shape s{n};
        for (int a = 0; a < row.rank(); ++a) s.push_back(row[a]);
        return s;
      };
      const Tensor x = numbers(dtype, with(11), false), values = numbers(dtype, with(700), false);
      const Tensor at = ((arange(700) * 13) % 24 - 12).astype(DType::Int16);
      const auto what = cat(name(dtype), " rows of shape ", row.str());
      const auto order = [&](const Tensor& t) {  // the axes of a row from the last to the first
        std::vector<int> axes{0};
        for (int a = t.rank(); a-- > 1;) axes.push_back(a);
        return permute_dims(t, axes);
      };
      expect_agreement([&] { return scatter_add(x, at, values); }, what);
      expect_agreement([&] { return scatter_max(x, at, values); }, what);
      expect_agreement([&] { return scatter_add(order(x), at, order(values)); }, what + ", permuted");
    }
}

/// Elements that move in short runs: a map reads runs that lie far apart and writes them side by side.
TEST(ShortRows, PermutedRunsOfEveryLength) {
  for (const DType dtype : {DType::Bool, DType::Float16, DType::Int32, DType::Float64})
    for (const std::int64_t run : {1, 2, 3, 8, 9})
      for (const auto& [rows, columns] : {std::pair{40, 33}, std::pair{129, 70}, std::pair{8, 600}}) {
        const Tensor x = numbers(dtype, {rows, columns, run}, false),
                     y = numbers(dtype, {columns, rows, run}, false);
        const Tensor chosen = numbers(DType::Bool, {columns, rows, 1}, false);
        const auto what = cat(name(dtype), " ", rows, " x ", columns, " runs of ", run);
        const auto turned = [&] { return permute_dims(x, {1, 0, 2}); };
        expect_agreement([&] { return where(chosen, turned(), y); }, what);
        const auto part = [&] { return permute_dims(x(range(1, none)), {1, 0, 2}); };
        const auto behind = [&](const Tensor& t) { return t(range(none, none), range(1, none)); };
        expect_agreement([&] { return where(behind(chosen), part(), behind(y)); }, "a part of " + what);
        expect_agreement([&] { return turned().astype(DType::Float32) + 1; }, "widened, " + what);
      }
}

}  // namespace
}  // namespace kiln
