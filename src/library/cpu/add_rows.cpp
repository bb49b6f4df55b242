// Rows are short and of any length. A row of up to 8 elements is pieces of 8, 4, 2 and 1, all in registers; a
// longer one is registers, of which the last shares elements with the one before: its sums are made before
// those are stored. Where one of the next rows is the same, its loads would wait for both of these stores to
// reach the cache: lists of few rows keep the pieces. Masked stores would make every such load wait.
#include "library/cpu/add_rows.h"

#include "device/cpu/target.h"

#include <kiln/dtype.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kiln::cpu {

#if defined(__x86_64__)
namespace {

constexpr std::int64_t kFetchedAhead = 16;  // rows
constexpr int kLongestKnown = 8;            // rows of no more elements have a loop of their own, …
constexpr int kTwoRegisters = -1;           // … and rows of one register to two

// As KILN_AVX2, with conversions of float16. Always inlined into the loop over rows.
#define KILN_ROWS __attribute__((optimize("O3"), target("avx2,f16c")))
#define KILN_PIECE [[gnu::always_inline]] inline KILN_ROWS

KILN_PIECE __m128i bits_of_4(const void* from) { return _mm_loadl_epi64(static_cast<const __m128i*>(from)); }
KILN_PIECE __m128i bits_of_2(const void* from) {
  int bits;
  std::memcpy(&bits, from, sizeof bits);
  return _mm_cvtsi32_si128(bits);
}

// Values as floats: eight, and four or two in the low lanes.
KILN_PIECE __m256 eight(const float* from) { return _mm256_loadu_ps(from); }
KILN_PIECE __m128 four(const float* from) { return _mm_loadu_ps(from); }
KILN_PIECE __m128 two(const float* from) { return _mm_castsi128_ps(bits_of_4(from)); }

KILN_PIECE __m256 eight(const float16* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
KILN_PIECE __m128 four(const float16* from) { return _mm_cvtph_ps(bits_of_4(from)); }
KILN_PIECE __m128 two(const float16* from) { return _mm_cvtph_ps(bits_of_2(from)); }

/// bfloat16 is the high half of a float32.
KILN_PIECE __m256 eight(const bfloat16* from) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
KILN_PIECE __m128 widened(__m128i bits) {
  return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), bits));
}
KILN_PIECE __m128 four(const bfloat16* from) { return widened(bits_of_4(from)); }
KILN_PIECE __m128 two(const bfloat16* from) { return widened(bits_of_2(from)); }

KILN_PIECE float one(const float* from) { return *from; }
KILN_PIECE float one(const float16* from) { return _cvtsh_ss(from->bits); }
KILN_PIECE float one(const bfloat16* from) { return static_cast<float>(*from); }

template <class T>
KILN_PIECE void add_8(float* to, const T* from) {
  _mm256_storeu_ps(to, _mm256_add_ps(_mm256_loadu_ps(to), eight(from)));
}
template <class T>
KILN_PIECE void add_4(float* to, const T* from) {
  _mm_storeu_ps(to, _mm_add_ps(_mm_loadu_ps(to), four(from)));
}
template <class T>
KILN_PIECE void add_2(float* to, const T* from) {
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_castps_si128(_mm_add_ps(two(to), two(from))));
}
template <class T>
KILN_PIECE void add_1(float* to, const T* from) {
  *to += one(from);
}

KILN_PIECE void add_4(double* to, const double* from) {
  _mm256_storeu_pd(to, _mm256_add_pd(_mm256_loadu_pd(to), _mm256_loadu_pd(from)));
}
KILN_PIECE void add_8(double* to, const double* from) {
  add_4(to, from);
  add_4(to + 4, from + 4);
}
KILN_PIECE void add_2(double* to, const double* from) {
  _mm_storeu_pd(to, _mm_add_pd(_mm_loadu_pd(to), _mm_loadu_pd(from)));
}
KILN_PIECE void add_1(double* to, const double* from) { *to += *from; }

/// What a register of elements becomes.
template <class T>
KILN_PIECE __m256 sums(const float* elements, const T* values) {
  return _mm256_add_ps(_mm256_loadu_ps(elements), eight(values));
}
KILN_PIECE __m256d sums(const double* elements, const double* values) {
  return _mm256_add_pd(_mm256_loadu_pd(elements), _mm256_loadu_pd(values));
}
KILN_PIECE void put(float* to, __m256 x) { _mm256_storeu_ps(to, x); }
KILN_PIECE void put(double* to, __m256d x) { _mm256_storeu_pd(to, x); }

template <class A, class T>
KILN_PIECE void add_pieces(A* to, const T* from, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) add_8(to + i, from + i);
  if (n & 4) add_4(to + i, from + i), i += 4;
  if (n & 2) add_2(to + i, from + i), i += 2;
  if (n & 1) add_1(to + i, from + i);
}

/// Pre: n is at least a register's elements.
template <class A, class T>
KILN_PIECE void add_registers(A* to, const T* from, std::int64_t n) {
  constexpr std::int64_t kLanes = 32 / sizeof(A);
  const auto last = sums(to + n - kLanes, from + n - kLanes);
  for (std::int64_t i = 0; i < n - kLanes; i += kLanes) put(to + i, sums(to + i, from + i));
  put(to + n - kLanes, last);
}

/// The same of two registers at most.
template <class A, class T>
KILN_PIECE void add_two_registers(A* to, const T* from, std::int64_t n) {
  constexpr std::int64_t kLanes = 32 / sizeof(A);
  const auto first = sums(to, from), last = sums(to + n - kLanes, from + n - kLanes);
  put(to, first);
  put(to + n - kLanes, last);
}

/// N > 0: of so many elements; else of more than kLongestKnown.
template <int N, class A, class T>
KILN_PIECE void add_row(A* to, const T* from, std::int64_t n, bool few) {
  if constexpr (N > 0)
    add_pieces(to, from, N);
  else if (few)
    add_pieces(to, from, n);
  else if constexpr (N == kTwoRegisters)
    add_two_registers(to, from, n);
  else
    add_registers(to, from, n);
}

/// Asks for the values of a later row: where rows are left out, the processor alone does not foresee them.
/// Short rows have their values in lines that it does.
template <class T>
KILN_PIECE void fetch_values(const RowList& list, std::int64_t now, const T* values, std::int64_t n) {
  constexpr std::int64_t kAhead = 2048, kShort = 128;  // bytes
  const std::int64_t bytes = n * static_cast<std::int64_t>(sizeof(T));
  if (bytes < kShort) return;
  const std::int64_t j = std::min(now + kAhead / bytes + 1, list.count - 1);
  const auto* const from = reinterpret_cast<const char*>(values + list.values[j]);
  for (std::int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(from + b);
}

/// N > 0: rows of so many elements.
template <int N, class A, class T>
KILN_ROWS void add_list(const RowList& list, A* elements, const T* values, std::int64_t n, bool cached) {
  if (cached) {
    for (std::int64_t j = 0; j < list.count; ++j) {
      fetch_values(list, j, values, N > 0 ? N : n);
      add_row<N>(elements + list.elements[j], values + list.values[j], n, list.few);
    }
    return;
  }
  for (std::int64_t j = 0; j < kFetchedAhead && j < list.count; ++j) fetch_row(list, j, elements, values, n);
  for (std::int64_t j = 0; j < list.count; ++j) {
    fetch_row(list, j + kFetchedAhead, elements, values, n);
    add_row<N>(elements + list.elements[j], values + list.values[j], n, list.few);
  }
}

template <class A, class T>
void add_rows_avx2(const RowList& list, A* elements, const T* values, std::int64_t n, bool cached) {
  static_assert(kLongestKnown == 8);
  switch (n) {
    case 1: return add_list<1>(list, elements, values, n, cached);
    case 2: return add_list<2>(list, elements, values, n, cached);
    case 3: return add_list<3>(list, elements, values, n, cached);
    case 4: return add_list<4>(list, elements, values, n, cached);
    case 5: return add_list<5>(list, elements, values, n, cached);
    case 6: return add_list<6>(list, elements, values, n, cached);
    case 7: return add_list<7>(list, elements, values, n, cached);
    case 8: return add_list<8>(list, elements, values, n, cached);
    default: break;
  }
  constexpr std::int64_t kLanes = 32 / sizeof(A);
  if (n >= kLanes && n <= 2 * kLanes && !list.few)
    return add_list<kTwoRegisters>(list, elements, values, n, cached);
  add_list<0>(list, elements, values, n, cached);
}

#undef KILN_PIECE
#undef KILN_ROWS

}  // namespace
#endif

template <class A, class T>
AddRows<A, T> add_rows() {
#if defined(__x86_64__)
  const InstructionSets target = host_instruction_sets();
  if (target.avx2 && target.f16c) return add_rows_avx2<A, T>;
#endif
  return nullptr;
}
template AddRows<float, float> add_rows<float, float>();
template AddRows<float, float16> add_rows<float, float16>();
template AddRows<float, bfloat16> add_rows<float, bfloat16>();
template AddRows<double, double> add_rows<double, double>();

}  // namespace kiln::cpu
