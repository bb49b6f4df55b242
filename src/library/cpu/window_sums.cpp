// As in gemm_micro.cpp each function carries the attribute of its instruction set, and inlines nothing that
// has another one.
#include "library/cpu/window_sums.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <type_traits>

namespace kiln::cpu {
namespace {

/// The accumulators of most rows fill the register file; see gemm_micro.cpp.
#define KILN_WINDOW_SUMS(NAME, ATTRIBUTE, TYPE, BYTES, MULTIPLY_ADD)                                         \
  template <int kRows>                                                                                       \
  ATTRIBUTE void NAME(std::int64_t k, const TYPE* a, std::int64_t a_step, const WindowVector<TYPE>* vectors, \
                      TYPE* c, std::int64_t ldc, bool first) {                                               \
    typedef TYPE V __attribute__((vector_size(BYTES), aligned(alignof(TYPE))));                              \
    typedef TYPE W __attribute__((vector_size(BYTES)));                                                      \
    constexpr int kVectors = window_vectors(kRows);                                                          \
    const TYPE* from[kVectors];                                                                              \
    const std::int64_t* steps[kVectors];                                                                     \
    W acc[kRows][kVectors];                                                                                  \
    _Pragma("GCC unroll 16") for (int j = 0; j < kVectors; ++j) {                                            \
      from[j] = vectors[j].from;                                                                             \
      steps[j] = vectors[j].steps;                                                                           \
      _Pragma("GCC unroll 16") for (int i = 0; i < kRows; ++i) acc[i][j] =                                   \
          first ? W{} : *reinterpret_cast<const V*>(c + vectors[j].column + i * ldc);                        \
    }                                                                                                        \
    for (std::int64_t p = 0; p < k; ++p, a += a_step) {                                                      \
      if constexpr (kRows < kVectors) { /* registers for all rows' elements, and one vector */               \
        W x[kRows];                                                                                          \
        _Pragma("GCC unroll 16") for (int i = 0; i < kRows; ++i) x[i] = a[i] - W{};                          \
        _Pragma("GCC unroll 16") for (int j = 0; j < kVectors; ++j) {                                        \
          const W y = *reinterpret_cast<const V*>(from[j] + steps[j][p]);                                    \
          _Pragma("GCC unroll 16") for (int i = 0; i < kRows; ++i) acc[i][j] =                               \
              MULTIPLY_ADD(x[i], y, acc[i][j]);                                                              \
        }                                                                                                    \
      } else {                                                                                               \
        W y[kVectors];                                                                                       \
        _Pragma("GCC unroll 16") for (int j = 0; j < kVectors; ++j) y[j] =                                   \
            *reinterpret_cast<const V*>(from[j] + steps[j][p]);                                              \
        _Pragma("GCC unroll 16") for (int i = 0; i < kRows; ++i) {                                           \
          const W x = a[i] - W{};                                                                            \
          _Pragma("GCC unroll 16") for (int j = 0; j < kVectors; ++j) acc[i][j] =                            \
              MULTIPLY_ADD(x, y[j], acc[i][j]);                                                              \
        }                                                                                                    \
      }                                                                                                      \
    }                                                                                                        \
    _Pragma("GCC unroll 16") for (int j = 0; j < kVectors; ++j)                                              \
            _Pragma("GCC unroll 16") for (int i = 0; i < kRows; ++i) *                                       \
        reinterpret_cast<V*>(c + vectors[j].column + i * ldc) = acc[i][j];                                   \
  }

#define KILN_PLAIN(x, y, z) ((x) * (y) + (z))
KILN_WINDOW_SUMS(sums_f32_base, , float, 16, KILN_PLAIN)
KILN_WINDOW_SUMS(sums_f64_base, , double, 16, KILN_PLAIN)

#if defined(__x86_64__)
#define KILN_AVX2 __attribute__((target("avx2,fma")))
#define KILN_AVX512 \
  __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,prefer-vector-width=512")))
KILN_WINDOW_SUMS(sums_f32_strict_avx2, KILN_AVX2, float, 32, KILN_PLAIN)
KILN_WINDOW_SUMS(sums_f64_strict_avx2, KILN_AVX2, double, 32, KILN_PLAIN)
KILN_WINDOW_SUMS(sums_f32_strict_avx512, KILN_AVX512, float, 64, KILN_PLAIN)
KILN_WINDOW_SUMS(sums_f64_strict_avx512, KILN_AVX512, double, 64, KILN_PLAIN)
KILN_WINDOW_SUMS(sums_f32_avx2, KILN_AVX2, float, 32, _mm256_fmadd_ps)
KILN_WINDOW_SUMS(sums_f64_avx2, KILN_AVX2, double, 32, _mm256_fmadd_pd)
KILN_WINDOW_SUMS(sums_f32_avx512, KILN_AVX512, float, 64, _mm512_fmadd_ps)
KILN_WINDOW_SUMS(sums_f64_avx512, KILN_AVX512, double, 64, _mm512_fmadd_pd)
#endif

#if defined(__x86_64__)
// Each takes whole vectors, and returns how many elements; nothing behind the last of them is read.
KILN_AVX512 std::int64_t every_second_avx512(const float* from, float* to, std::int64_t n) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31);
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16)  // the second vector begins one element early
    _mm512_storeu_ps(to + i, _mm512_permutex2var_ps(_mm512_loadu_ps(from + 2 * i), even,
                                                    _mm512_loadu_ps(from + 2 * i + 15)));
  return i;
}
KILN_AVX2 std::int64_t every_second_avx2(const float* from, float* to, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    // by halves of registers: 0-1, 4-5, 2-3, 6-7
    const __m256 both =
        _mm256_shuffle_ps(_mm256_loadu_ps(from + 2 * i), _mm256_loadu_ps(from + 2 * i + 7), 0xd8);
    _mm256_storeu_pd(reinterpret_cast<double*>(to + i), _mm256_permute4x64_pd(_mm256_castps_pd(both), 0xd8));
  }
  return i;
}
#endif

#define KILN_ROWS_TO_4(NAME) NAME<1>, NAME<2>, NAME<3>, NAME<4>
#define KILN_ROWS_TO_6(NAME) KILN_ROWS_TO_4(NAME), NAME<5>, NAME<6>
#define KILN_ROWS_TO_14(NAME) \
  KILN_ROWS_TO_6(NAME), NAME<7>, NAME<8>, NAME<9>, NAME<10>, NAME<11>, NAME<12>, NAME<13>, NAME<14>
#define KILN_SET(NAME, TYPE, BYTES, ROWS)                                       \
  WindowMicro<TYPE> {                                                           \
    ROWS, BYTES / static_cast<int>(sizeof(TYPE)), { KILN_ROWS_TO_##ROWS(NAME) } \
  }

}  // namespace

#if defined(__x86_64__)
#define KILN_OF_LEVEL(NAME, TYPE)                                         \
  switch (level) {                                                        \
    case SumLevel::Avx512:                                                \
      return strict ? KILN_SET(sums_##NAME##_strict_avx512, TYPE, 64, 14) \
                    : KILN_SET(sums_##NAME##_avx512, TYPE, 64, 14);       \
    case SumLevel::Avx2:                                                  \
      return strict ? KILN_SET(sums_##NAME##_strict_avx2, TYPE, 32, 6)    \
                    : KILN_SET(sums_##NAME##_avx2, TYPE, 32, 6);          \
    case SumLevel::Base: break;                                           \
  }                                                                       \
  return KILN_SET(sums_##NAME##_base, TYPE, 16, 4)
#else
#define KILN_OF_LEVEL(NAME, TYPE) return KILN_SET(sums_##NAME##_base, TYPE, 16, 4)
#endif

void every_second([[maybe_unused]] SumLevel level, const float* from, float* to, std::int64_t n) {
  std::int64_t i = 0;
#if defined(__x86_64__)
  if (level == SumLevel::Avx512) i = every_second_avx512(from, to, n);
  if (level >= SumLevel::Avx2) i += every_second_avx2(from + 2 * i, to + i, n - i);
#endif
  for (; i < n; ++i) to[i] = from[2 * i];
}

template <>
WindowMicro<float> window_micro<float>([[maybe_unused]] SumLevel level, [[maybe_unused]] bool strict) {
  KILN_OF_LEVEL(f32, float);
}
template <>
WindowMicro<double> window_micro<double>([[maybe_unused]] SumLevel level, [[maybe_unused]] bool strict) {
  KILN_OF_LEVEL(f64, double);
}

}  // namespace kiln::cpu
