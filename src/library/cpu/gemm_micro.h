// The inner loops of matrix products, one set for each instruction set, chosen once at run time.
#pragma once

#include <cstdint>

namespace kiln::cpu {

inline constexpr int kMostRows = 14;

/// What later calls read of either operand, and is asked for meanwhile: so many bytes a step from an address
/// on, or nothing.
struct Ahead {
  const void *a = nullptr, *b = nullptr;
  std::int64_t a_step = 0, b_step = 0;
};

/// c[mr × nr] (rows ldc apart, 64-byte aligned rows) = (first ? 0 : c) + Σ_p a[p·mr + i] · b[p·nr + j].
template <class C>
struct Micro {
  int mr, nr, few_columns, wide_columns;  // few_columns: nr / 4, or nr / 2 where no register is that narrow
  void (*run)(std::int64_t k, const C* a, const C* b, C* c, std::int64_t ldc, bool first, const Ahead& ahead);
  /// c[rows × columns] = (first ? 0 : c) + Σ_p a[i·a_row + p·a_col] · b[p·b_row + j], of operands where they
  /// lie, at any alignment. Every function of rows 1 to mr and of columns few_columns, nr / 2 and nr.
  /// `fetch`: the next call may read the columns of b behind these.
  using Direct = void(std::int64_t k, const C* a, std::int64_t a_row, std::int64_t a_col, const C* b,
                      std::int64_t b_row, C* c, std::int64_t ldc, bool first, bool fetch);
  Direct* directs[kMostRows][3];
  /// Pre: 1 <= rows <= mr. The fewest columns that `columns` are no more than.
  Direct* direct(std::int64_t rows, std::int64_t columns) const {
    return directs[rows - 1][2 * columns > nr ? 2 : columns > few_columns];
  }
  /// c[j] = Σ_p x[p] · b[p·b_row + j], j < wide_columns.
  void (*wide)(std::int64_t k, const C* x, const C* b, std::int64_t b_row, C* c);
  /// The same of n columns, a multiple of a register's, along rows of b: for rows that are far apart.
  void (*along)(std::int64_t k, const C* x, const C* b, std::int64_t b_row, std::int64_t n, C* c);
};

/// C: float, double, std::uint32_t, std::uint64_t. `strict`: each product rounds before it is added.
template <class C>
const Micro<C>& micro(bool strict);

/// to[p·width + 8·j + i] = pieces[j][at + i] for i < 8, j < count and p < depth, of elements of 4 bytes,
/// where `at` is steps[p], or p·step where that is null. 1 <= count <= kMostPieces. False: nothing was done,
/// there are no such registers.
inline constexpr int kMostPieces = 4;
bool copy_pieces(const std::uint32_t* const* pieces, int count, const std::int64_t* steps, std::int64_t step,
                 std::int64_t depth, std::uint32_t* to, std::int64_t width);

/// to[(r·n + p)·width + w] = lines[w][starts[r] + p] for w < 8, r < runs and p < n, a multiple of four, of
/// elements of 4 bytes: squares of eight by four, transposed in registers. False: nothing was done, there are
/// no such registers.
bool pack_eight_lines(const std::uint32_t* const* lines, const std::int64_t* starts, std::int64_t runs,
                      std::int64_t n, std::uint32_t* to, std::int64_t width);

/// float16, or bfloat16, to float: to[r·to_step + i] = from[r·step + i] for r < runs and i < n.
void widen_halves(const std::uint16_t* from, std::int64_t step, std::int64_t runs, std::int64_t n, float* to,
                  std::int64_t to_step);
void widen_bfloats(const std::uint16_t* from, std::int64_t step, std::int64_t runs, std::int64_t n, float* to,
                   std::int64_t to_step);
/// float to float16, rounding to nearest even, by hardware where there is any.
void narrow_half(const float* from, std::uint16_t* to, std::int64_t n);
/// float to bfloat16, rounding to nearest even, in registers where there are some.
void narrow_bfloat(const float* from, std::uint16_t* to, std::int64_t n);

}  // namespace kiln::cpu
