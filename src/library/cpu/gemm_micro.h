// The inner loops of matrix products, one set for each instruction set, chosen once at run time.
#pragma once

#include <cstdint>

namespace kiln::cpu {

/// c[mr × nr] (rows ldc apart, 64-byte aligned rows) = (first ? 0 : c) + Σ_p a[p·mr + i] · b[p·nr + j].
template <class C>
struct Micro {
  int mr, nr;
  void (*run)(std::int64_t k, const C* a, const C* b, C* c, std::int64_t ldc, bool first);
  /// The same sums of operands where they lie: a[i·a_row + p·a_col] · b[p·b_row + j], i < rows <= mr, 1 <=
  /// rows. Any alignment; c is written, and none of its rows from `rows` on.
  void (*direct)(std::int64_t k, const C* a, std::int64_t a_row, std::int64_t a_col, int rows, const C* b,
                 std::int64_t b_row, C* c, std::int64_t ldc);
};

/// C: float, double, std::uint32_t, std::uint64_t. `strict`: each product rounds before it is added.
template <class C>
const Micro<C>& micro(bool strict);

/// float16 to float and back, rounding to nearest even, by hardware where there is any.
void widen_half(const std::uint16_t* from, float* to, std::int64_t n);
void narrow_half(const float* from, std::uint16_t* to, std::int64_t n);

}  // namespace kiln::cpu
