// add_adjacent: a short row of numbers added to another, in registers whatever its length.
#pragma once

#include <kiln/dtype.h>

#include <cstdint>
#include <type_traits>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace kiln::cpu {

#if defined(__SSE2__)
constexpr bool kAddsHalves = true;

/// bfloat16 is the high half of a float32.
inline void add_adjacent(float* elements, const bfloat16* values, std::int64_t n) {
  const auto add = [](float* to, __m128i bits) {
    _mm_storeu_ps(to, _mm_add_ps(_mm_loadu_ps(to), _mm_castsi128_ps(bits)));
  };
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(values + i));
    add(elements + i, _mm_unpacklo_epi16(_mm_setzero_si128(), x));
    add(elements + i + 4, _mm_unpackhi_epi16(_mm_setzero_si128(), x));
  }
  for (; i < n; ++i) elements[i] += static_cast<float>(values[i]);
}
#else
constexpr bool kAddsHalves = false;
#endif

/// Adjacent numbers are added, 16 bytes at a time: rows are short, and a loop that a compiler makes registers
/// of takes longer to begin than they last.
template <class A>
void add_adjacent(A* elements, const A* values, std::int64_t n) {
  constexpr std::int64_t kTogether = 16 / sizeof(A);
  using Together [[gnu::vector_size(16), gnu::aligned(sizeof(A)), gnu::may_alias]] = A;
  std::int64_t i = 0;
  for (; i + kTogether <= n; i += kTogether) {
    auto* const to = reinterpret_cast<Together*>(elements + i);
    *to = *to + *reinterpret_cast<const Together*>(values + i);
  }
  for (; i < n; ++i) elements[i] += values[i];
}

/// Whether there is an add_adjacent for halves.
template <class A, class T>
constexpr bool kAddsInRegisters = kAddsHalves && std::is_same_v<A, float> && std::is_same_v<T, bfloat16>;

}  // namespace kiln::cpu
