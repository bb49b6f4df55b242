// How values meet the elements that their indices name.
#pragma once

#include "library/cpu/add_adjacent.h"
#include "library/cpu/gemm_micro.h"
#include "library/library.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace kiln::cpu {

/// Sums and products of halves are kept in float32 until they are complete.
template <class T>
constexpr bool kHalf = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

/// Whether add_rows.h has additions for these types.
template <Combine How, class A, class T>
constexpr bool kAddsRows =
    How == Combine::Add && ((std::is_same_v<A, float> && (kHalf<T> || std::is_same_v<T, float>)) ||
                            (std::is_same_v<A, double> && std::is_same_v<T, double>));

constexpr std::int64_t kWidenedAtOnce = 256, kFewestWidened = 8;  // elements of a row of float16

/// One value meets one element; A is what elements are kept in.
template <Combine How, class A, class T>
void meet(A& element, T value) {
  using W = std::conditional_t<kHalf<T>, float, T>;
  if constexpr (How == Combine::Set) {
    element = static_cast<A>(value);
  } else if constexpr (How == Combine::Max || How == Combine::Min) {
    const W best = static_cast<W>(element), x = static_cast<W>(value);
    const bool better = How == Combine::Max ? x > best : x < best;
    if (best == best && (x != x || better)) element = static_cast<A>(value);
  } else if constexpr (std::is_integral_v<A>) {
    const auto a = static_cast<std::uint64_t>(element), b = static_cast<std::uint64_t>(value);  // wraps
    element = static_cast<A>(How == Combine::Add ? a + b : a * b);
  } else {
    element = static_cast<A>(How == Combine::Add ? static_cast<W>(element) + static_cast<W>(value)
                                                 : static_cast<W>(element) * static_cast<W>(value));
  }
}

/// Adjacent elements converted; halves in registers where there are some for that.
template <class A, class T>
void convert(const T* from, A* to, std::int64_t n) {
  if constexpr (std::is_same_v<T, float16> && std::is_same_v<A, float>)
    widen_halves(reinterpret_cast<const std::uint16_t*>(from), 0, 1, n, to, 0);
  else if constexpr (std::is_same_v<T, float> && std::is_same_v<A, float16>)
    narrow_half(from, reinterpret_cast<std::uint16_t*>(to), n);
  else if constexpr (std::is_same_v<T, float> && std::is_same_v<A, bfloat16>)
    narrow_bfloat(from, reinterpret_cast<std::uint16_t*>(to), n);
  else
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<A>(from[i]);
}

/// Adjacent elements meet values, those of a row, `step` apart. float16 is widened many at a time: without
/// the instruction one takes as long as reading ten.
template <Combine How, class A, class T>
void meet_row(A* elements, const T* values, std::int64_t step, std::int64_t n) {
  constexpr bool same = std::is_same_v<A, T> && std::is_floating_point_v<A>;
  if constexpr (How == Combine::Add && (same || kAddsInRegisters<A, T>))
    if (step == 1) return add_adjacent(elements, values, n);
  if constexpr (std::is_same_v<T, float16> && std::is_same_v<A, float>) {
    if (step == 1 && n >= kFewestWidened) {
      float wide[kWidenedAtOnce];
      for (std::int64_t i = 0; i < n; i += kWidenedAtOnce) {
        const std::int64_t here = std::min(kWidenedAtOnce, n - i);
        convert(values + i, wide, here);
        for (std::int64_t j = 0; j < here; ++j) meet<How>(elements[i + j], wide[j]);
      }
      return;
    }
  }
  if (step == 1)  // registers of them
    for (std::int64_t i = 0; i < n; ++i) meet<How>(elements[i], values[i]);
  else
    for (std::int64_t i = 0; i < n; ++i) meet<How>(elements[i], values[i * step]);
}

}  // namespace kiln::cpu
