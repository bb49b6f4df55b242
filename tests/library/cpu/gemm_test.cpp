#include "library/cpu/gemm.h"

#include "device/cpu/threads.h"
#include "with_threads.h"

#include <kiln/config.h>

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace kiln::cpu {
namespace {

using library::Matmul;

void run(const Matmul& call) {
  std::vector<std::byte> workspace(library().workspace_bytes(call) + 64);
  void* aligned = workspace.data();
  std::size_t room = workspace.size();
  library().matmul(call, static_cast<std::byte*>(std::align(64, 1, aligned, room)));
}

template <class T>
T some(std::mt19937& rng) {
  if constexpr (std::is_same_v<T, bool>) {
    return rng() % 8 == 0;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(std::uint64_t{rng()} * rng());
  } else {
    return static_cast<T>(static_cast<float>(static_cast<int>(rng() % 2001) - 1000) / 500.0f);
  }
}

struct Layout {
  bool a_transposed = false, b_transposed = false;
  std::int64_t a_gap = 0, b_gap = 0;  // extra elements between rows
  bool a_reversed = false;            // negative row stride
  std::int64_t a_spread = 1;          // elements between neighbours of a row
  std::int64_t b_spread = 1;
};

/// rows × cols at (offset, row_stride, col_stride) of memory just large enough.
struct Placed {
  std::int64_t offset = 0, row = 0, col = 0, size = 0;
};
Placed place(std::int64_t rows, std::int64_t cols, bool transposed, std::int64_t gap, bool reversed,
             std::int64_t spread) {
  Placed p;
  p.row = transposed ? spread : (cols + gap) * spread;
  p.col = transposed ? (rows + gap) * spread : spread;
  p.size = (rows ? (rows - 1) * p.row : 0) + (cols ? (cols - 1) * p.col : 0) + 1;
  if (reversed && rows) {
    p.offset = (rows - 1) * p.row;
    p.row = -p.row;
  }
  return p;
}

/// Offsets of n lines, in runs of `run` adjacent ones, the last run first.
std::vector<std::int64_t> in_runs(std::int64_t n, std::int64_t step, std::int64_t run) {
  std::vector<std::int64_t> at;
  for (std::int64_t begin = (n - 1) / run * run; begin >= 0; begin -= run)
    for (std::int64_t i = begin; i < std::min(begin + run, n); ++i) at.push_back(i * step);
  return at;
}

/// `tables`: bit set of the axes (rows and columns of a, of b) that lie at offsets.
template <class T>
void check(std::int64_t m, std::int64_t n, std::int64_t k, const Layout& layout = {}, int tables = 0,
           int run_length = 8) {
  std::mt19937 rng(static_cast<unsigned>(m * 7919 + n * 31 + k));
  const Placed pa = place(m, k, layout.a_transposed, layout.a_gap, layout.a_reversed, layout.a_spread);
  const Placed pb = place(k, n, layout.b_transposed, layout.b_gap, false, layout.b_spread);
  std::unique_ptr<T[]> a(new T[static_cast<std::size_t>(pa.size)]),
      b(new T[static_cast<std::size_t>(pb.size)]);
  for (std::int64_t i = 0; i < pa.size; ++i) a[i] = some<T>(rng);
  for (std::int64_t i = 0; i < pb.size; ++i) b[i] = some<T>(rng);
  std::unique_ptr<T[]> out(new T[static_cast<std::size_t>(m * n) + 1]);
  std::memset(static_cast<void*>(out.get()), 0x7f, sizeof(T) * static_cast<std::size_t>(m * n + 1));
  Matmul call;
  call.dtype = dtype_of<T>;
  call.m = m, call.n = n, call.k = k;
  call.a = {a.get() + pa.offset, pa.row, pa.col, {}};
  call.b = {b.get(), pb.row, pb.col, {}};
  call.out = out.get();
  const std::vector<std::int64_t> at[] = {in_runs(m, pa.row, run_length), in_runs(k, pa.col, run_length),
                                          in_runs(k, pb.row, run_length), in_runs(n, pb.col, run_length)};
  const std::int64_t* const table[] = {
      tables & 1 ? at[0].data() : nullptr, tables & 2 ? at[1].data() : nullptr,
      tables & 4 ? at[2].data() : nullptr, tables & 8 ? at[3].data() : nullptr};
  call.a.row_offsets = table[0], call.a.col_offsets = table[1];
  call.b.row_offsets = table[2], call.b.col_offsets = table[3];
  const auto line = [&](int axis, std::int64_t i, std::int64_t step) {
    return table[axis] ? table[axis][i] : i * step;
  };
  run(call);
  const std::string where = std::string(name(dtype_of<T>)) + " " + std::to_string(m) + "x" +
                            std::to_string(n) + "x" + std::to_string(k);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      const auto at_a = [&](std::int64_t p) {
        return a[pa.offset + line(0, i, pa.row) + line(1, p, pa.col)];
      };
      const auto at_b = [&](std::int64_t p) { return b[line(2, p, pb.row) + line(3, j, pb.col)]; };
      const T got = out[i * n + j];
      if constexpr (std::is_same_v<T, bool>) {
        bool expected = false;
        for (std::int64_t p = 0; p < k; ++p) expected |= at_a(p) && at_b(p);
        ASSERT_EQ(got, expected) << where;
      } else if constexpr (std::is_integral_v<T>) {
        std::uint64_t expected = 0;
        for (std::int64_t p = 0; p < k; ++p)
          expected += static_cast<std::uint64_t>(at_a(p)) * static_cast<std::uint64_t>(at_b(p));
        ASSERT_EQ(got, static_cast<T>(expected)) << where;
      } else {
        double expected = 0, magnitude = 0;
        for (std::int64_t p = 0; p < k; ++p) {
          const double term = static_cast<double>(at_a(p)) * static_cast<double>(at_b(p));
          expected += term;
          magnitude += std::abs(term);
        }
        const double unit = std::is_same_v<T, double> ? 0x1p-53 : 0x1p-24;
        double bound = unit * (static_cast<double>(k) + 2) * magnitude;
        if (is_half(dtype_of<T>))
          bound += std::abs(expected) * (std::is_same_v<T, float16> ? 0x1p-11 : 0x1p-8) + 1e-7;
        ASSERT_NEAR(static_cast<double>(got), expected, bound + 1e-300) << where << " at " << i << "," << j;
      }
    }
}

template <class T>
class Gemm : public testing::WithThreads {};

using Types = ::testing::Types<bool, std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t,
                               std::uint16_t, std::uint32_t, std::uint64_t, float16, bfloat16, float, double>;
TYPED_TEST_SUITE(Gemm, Types);

TYPED_TEST(Gemm, MatchesTheNaiveLoopForSmallShapes) {
  for (std::int64_t m : {0, 1, 2, 13, 15, 29})
    for (std::int64_t n : {0, 1, 3, 31, 33, 65})
      for (std::int64_t k : {0, 1, 2, 17, 385}) check<TypeParam>(m, n, k);
}

/// The last columns have a register, half of one, or share columns with those before them.
TYPED_TEST(Gemm, EveryNumberOfColumns) {
  for (std::int64_t n = 2; n <= 73; ++n)
    for (const std::int64_t m : {2, 14, 17}) {
      check<TypeParam>(m, n, 5);
      check<TypeParam>(m, n, 9, Layout{.a_transposed = true, .b_gap = 3});
      check<TypeParam>(m, n, 6, Layout{.b_transposed = true});
    }
  for (const std::int64_t n : {97, 100, 104, 113, 129, 200, 265}) check<TypeParam>(180, n, 30);
  for (const int threads : {1, 2, 7}) {  // which share out rows read where they lie
    this->use(threads);
    for (const std::int64_t m : {15, 23, 98, 168}) check<TypeParam>(m, 168, 168);
    check<TypeParam>(97, 100, 101, Layout{.a_transposed = true, .b_gap = 3});
    check<TypeParam>(100, 99, 100, Layout{.a_reversed = true});
  }
}

/// Operands that stay near where they lie are multiplied some hundred steps at a time; lines that are pages
/// apart, and columns that are not adjacent, are packed.
TYPED_TEST(Gemm, ManyStepsOfOperandsThatStayNear) {
  constexpr auto kPage = static_cast<std::int64_t>(4096 / sizeof(TypeParam));
  for (const int threads : {1, 3}) {  // three share out columns where there are few rows
    this->use(threads);
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{130, 45, 257}, {61, 75, 530}, {3, 210, 1030}}) {
      check<TypeParam>(m, n, k);
      check<TypeParam>(m, n, k, Layout{.a_transposed = true, .b_gap = 3});
      check<TypeParam>(m, n, k, Layout{.a_reversed = true, .a_spread = 2});
      check<TypeParam>(m, n, k, Layout{.b_transposed = true});
      check<TypeParam>(m, n, k, Layout{.b_gap = kPage - n});
      check<TypeParam>(m, n, k, Layout{.a_gap = 2 * kPage - k});
      check<TypeParam>(m, n, k, Layout{.a_transposed = true, .a_gap = kPage - m});
      check<TypeParam>(m, n, k, Layout{.b_spread = 2});
    }
  }
}

TYPED_TEST(Gemm, MatchesTheNaiveLoopOnThreads) {
  for (int threads : {1, 2, 5}) {
    this->use(threads);
    check<TypeParam>(200, 130, 70);
    check<TypeParam>(37, 600, 100);
    check<TypeParam>(700, 1, 900);
    check<TypeParam>(1, 900, 700);
  }
}

/// Few rows read whole panels of columns where they lie, and pack what is left of them, or lies otherwise.
TYPED_TEST(Gemm, FewRowsOfManySteps) {
  for (const int threads : {1, 2}) {
    this->use(threads);
    for (const std::int64_t m : {2, 8, 13})
      for (const std::int64_t n : {24, 44, 64}) {
        check<TypeParam>(m, n, 5000 - 8 * n);
        check<TypeParam>(m, n, 5000 - 8 * n, {false, true, 0, 3, false, 1});
      }
  }
}

/// Many lines of adjacent elements times a few vectors, which may lie anywhere.
TYPED_TEST(Gemm, ManyLinesTimesFewVectors) {
  for (const int threads : {1, 2}) {
    this->use(threads);
    for (const std::int64_t few : {2, 3, 4, 5, 8, 9, 16, 17})
      for (const auto& [lines, k] : {std::array<std::int64_t, 2>{17, 16}, {18, 3}, {1003, 8}, {131, 200}}) {
        check<TypeParam>(lines, few, k);
        check<TypeParam>(lines, few, k, {false, true, 3, 1, false, 1});
        check<TypeParam>(lines, few, k, {false, false, 2, 0, true, 1});
        check<TypeParam>(lines, few, k, {}, 12, 3);
        check<TypeParam>(few, lines, k, {false, true, 0, 0, false, 1});
        check<TypeParam>(few, lines, k, {true, true, 1, 5, false, 1});
        check<TypeParam>(few, lines, k, {false, true, 0, 2, false, 1}, 3, 3);
      }
  }
}

/// Many rows times few columns: rows are read where they lie, or packed by the tile that reads them; those a
/// page apart are packed.
TYPED_TEST(Gemm, ManyRowsOfFewColumns) {
  constexpr auto kPage = static_cast<std::int64_t>(4096 / sizeof(TypeParam));
  for (const int threads : {1, 2}) {
    this->use(threads);
    const std::int64_t m = 8 * 14 * threads + 3;
    for (const std::int64_t n : {17, 24, 33, 70, 129})
      for (const std::int64_t k : {5, 40, 400}) {
        check<TypeParam>(m, n, k);
        if (n > 33) continue;
        check<TypeParam>(m, n, k, {true, false, 1, 2, false, 1});
        check<TypeParam>(m, n, k, {false, true, 3, 0, true, 1});
        check<TypeParam>(m, n, k, {false, false, 0, 0, false, 2});
        check<TypeParam>(m, n, k, {false, false, kPage - k, 0, false, 1});
        for (const int run : {5, 16, 100}) check<TypeParam>(m, n, k, {}, 3, run);
        check<TypeParam>(m, n, k, {}, 2, 16);
        check<TypeParam>(m, n, k, {false, false, 2, 0, false, 1}, 1, 9);
      }
  }
}

TYPED_TEST(Gemm, AcceptsAnyStrides) {
  for (bool ta : {false, true})
    for (bool tb : {false, true})
      for (auto [m, n, k] :
           {std::array<std::int64_t, 3>{17, 35, 70}, {1, 300, 40}, {300, 1, 40}, {5, 5, 300}}) {
        check<TypeParam>(m, n, k, {ta, tb, 0, 0, false, 1});
        check<TypeParam>(m, n, k, {ta, tb, 3, 5, false, 1});
        check<TypeParam>(m, n, k, {ta, tb, 0, 1, true, 1});
        check<TypeParam>(m, n, k, {ta, tb, 1, 0, false, 2});
      }
}

TYPED_TEST(Gemm, RowsAndColumnsAtOffsets) {
  const std::int64_t shapes[][3] = {{1, 1, 1},    {1, 40, 9},    {17, 1, 30}, {5, 9, 40},
                                    {20, 50, 33}, {32, 70, 400}, {180, 33, 9}};
  for (const auto& [m, n, k] : shapes)
    for (int tables = 1; tables < 16; ++tables)
      for (const int run : {1, 3, 8, 20}) {
        check<TypeParam>(m, n, k, {}, tables, run);
        if (tables % 4 == 3) check<TypeParam>(m, n, k, {true, true, 2, 1, false, 1}, tables, run);
      }
}

/// As windows that move by more than one element: lines are equally far apart, in runs.
TYPED_TEST(Gemm, LinesAtOffsetsThatAreEquallyFarApart) {
  const std::int64_t shapes[][3] = {{20, 50, 33}, {32, 70, 400}, {180, 33, 9}, {90, 81, 3}};
  for (const auto& [m, n, k] : shapes)
    for (const std::int64_t spread : {2, 3, 5})
      for (const int run : {4, 7, 13, 32})
        for (const int tables : {1, 8, 9, 15})
          check<TypeParam>(m, n, k, {true, false, 1, 2, false, spread, spread}, tables, run);
}

TYPED_TEST(Gemm, RowsAndColumnsAtOffsetsOnThreads) {
  this->use(2);
  for (const int run : {4, 5, 16}) check<TypeParam>(40, 230, 500, {}, 15, run);
}

TYPED_TEST(Gemm, ManyShortRowsTimesAFewColumns) {
  for (const std::int64_t k : {5, 8, 16, 33, 47, 48})
    for (const std::int64_t n : {7, 8, 12, 16}) {
      check<TypeParam>(203, n, k);
      Layout layout;
      layout.b_transposed = true;
      check<TypeParam>(95, n, k, layout);
    }
}

TEST(GemmBatch, OperandsAtOffsetsThatAllBatchesShare) {
  const Config before = config();
  for (const int threads : {1, 3})
    for (const bool left : {true, false})
      for (const std::int64_t count : {1, 5}) {
        Config c = before;
        c.num_threads = threads;
        configure(c);
        const std::int64_t m = 17, n = 40, k = 90, a_size = m * k, b_size = k * n;
        std::vector<bfloat16> a(static_cast<std::size_t>(count * a_size)),
            b(static_cast<std::size_t>(count * b_size)), out(static_cast<std::size_t>(count * m * n));
        for (std::size_t i = 0; i < a.size(); ++i)
          a[i] = static_cast<bfloat16>(static_cast<float>(i % 7) - 3);
        for (std::size_t i = 0; i < b.size(); ++i)
          b[i] = static_cast<bfloat16>(static_cast<float>(i % 5) - 2);
        const auto rows = in_runs(left ? m : k, left ? k : n, 3), cols = in_runs(left ? k : n, 1, 6);
        Matmul call;
        call.dtype = DType::BFloat16;
        call.m = m, call.n = n, call.k = k, call.batch_rank = 1, call.batch[0] = count;
        call.a = {a.data(), k, 1, {left ? 0 : a_size}};
        call.b = {b.data(), n, 1, {left ? b_size : 0}};
        (left ? call.a : call.b).row_offsets = rows.data();
        (left ? call.a : call.b).col_offsets = cols.data();
        call.out = out.data();
        run(call);
        for (std::int64_t i = 0; i < count; ++i)
          for (std::int64_t r = 0; r < m; ++r)
            for (std::int64_t s = 0; s < n; ++s) {
              float expected = 0;
              for (std::int64_t p = 0; p < k; ++p) {
                const auto at = [](const std::vector<std::int64_t>& table, std::int64_t line) {
                  return table[static_cast<std::size_t>(line)];
                };
                const std::int64_t in_a = left ? at(rows, r) + at(cols, p) : i * a_size + r * k + p,
                                   in_b = left ? i * b_size + p * n + s : at(rows, p) + at(cols, s);
                expected += static_cast<float>(a[static_cast<std::size_t>(in_a)]) *
                            static_cast<float>(b[static_cast<std::size_t>(in_b)]);
              }
              ASSERT_EQ(static_cast<float>(out[static_cast<std::size_t>((i * m + r) * n + s)]),
                        static_cast<float>(static_cast<bfloat16>(expected)))
                  << i << " " << r << " " << s;
            }
      }
  configure(before);
}

TEST(GemmBatch, BroadcastsByZeroStridesAndSplitsOverThreads) {
  const Config before = config();
  for (int threads : {1, 3}) {
    Config c = before;
    c.num_threads = threads;
    configure(c);
    const std::int64_t outer = 3, inner = 40, m = 9, n = 21, k = 50;
    std::vector<float> a(static_cast<std::size_t>(outer * m * k)), b(static_cast<std::size_t>(inner * k * n));
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 7) - 3;
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 5) - 2;
    std::vector<float> out(static_cast<std::size_t>(outer * inner * m * n));
    Matmul call;
    call.m = m, call.n = n, call.k = k;
    call.batch_rank = 2;
    call.batch[0] = outer, call.batch[1] = inner;
    call.a = {a.data(), k, 1, {m * k, 0}};
    call.b = {b.data(), n, 1, {0, k * n}};
    call.out = out.data();
    run(call);
    for (std::int64_t o = 0; o < outer; ++o)
      for (std::int64_t i = 0; i < inner; ++i)
        for (std::int64_t r = 0; r < m; ++r)
          for (std::int64_t s = 0; s < n; ++s) {
            float expected = 0;
            for (std::int64_t p = 0; p < k; ++p)
              expected += a[static_cast<std::size_t>(o * m * k + r * k + p)] *
                          b[static_cast<std::size_t>(i * k * n + p * n + s)];
            ASSERT_EQ(out[static_cast<std::size_t>(((o * inner + i) * m + r) * n + s)], expected);
          }
  }
  configure(before);
}

TEST(GemmNumbers, BitsDoNotDependOnTheNumberOfThreads) {
  const Config before = config();
  std::mt19937 rng(1);
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{333, 417, 801},
                                {500, 33, 801},
                                {500, 150, 400},
                                {100, 97, 100},
                                {3, 500, 800},
                                {1025, 33, 30},
                                {333, 417, 1024}}) {
    std::vector<float> a(static_cast<std::size_t>(m * k)), b(static_cast<std::size_t>(k * n));
    for (float& x : a) x = some<float>(rng) * 0.37f;
    for (float& x : b) x = some<float>(rng) * 0.73f;
    std::vector<float> first;
    for (int threads : {1, 2, 7}) {
      Config c = before;
      c.num_threads = threads;
      configure(c);
      std::vector<float> out(static_cast<std::size_t>(m * n));
      Matmul call;
      call.m = m, call.n = n, call.k = k;
      call.a = {a.data(), k, 1, {}};
      call.b = {b.data(), n, 1, {}};
      call.out = out.data();
      run(call);
      if (first.empty()) first = out;
      EXPECT_EQ(std::memcmp(first.data(), out.data(), out.size() * sizeof(float)), 0)
          << threads << " threads, " << n << " columns";
    }
  }
  configure(before);
}

TEST(GemmNumbers, InfinityTimesZeroIsNan) {
  for (std::int64_t m : {1, 4})
    for (std::int64_t n : {1, 4}) {
      std::vector<float> a(static_cast<std::size_t>(m * 3), std::numeric_limits<float>::infinity());
      std::vector<float> b(static_cast<std::size_t>(3 * n), 0.0f), out(static_cast<std::size_t>(m * n));
      Matmul call;
      call.m = m, call.n = n, call.k = 3;
      call.a = {a.data(), 3, 1, {}};
      call.b = {b.data(), n, 1, {}};
      call.out = out.data();
      run(call);
      for (float x : out) EXPECT_TRUE(std::isnan(x));
    }
}

}  // namespace
}  // namespace kiln::cpu
