// A function of each instruction set: an inline helper would be lowered for the base before it is inlined, so
// helpers carry the attribute of the functions that they are for.
#include "library/cpu/line_sums.h"

#include <kiln/dtype.h>

#include <algorithm>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kiln::cpu {
namespace {

template <class T>
using ComputeType = typename ComputeOf<T>::type;

/// The last elements of some lines, with zeros behind them.
template <class T, int N>
struct Padded {
  T at[N][kLineLanes];
  Padded(const T* from, std::int64_t row, std::int64_t n) : at{} {
    for (int i = 0; i < N; ++i) std::copy_n(from + i * row, n, at[i]);
  }
};

template <class T>
void sums_base(std::int64_t k, const T* lines, std::int64_t line, const ComputeType<T>* x, std::int64_t,
               ComputeType<T>* c, std::int64_t c_line, std::int64_t) {
  using C = ComputeType<T>;
  C lanes[kLines][kLineLanes] = {}, wide[kLineLanes];
  std::int64_t p = 0;
  for (; p + kLineLanes <= k; p += kLineLanes)
    for (int i = 0; i < kLines; ++i) {
      widen(lines + i * line + p, wide, kLineLanes);
      for (int l = 0; l < kLineLanes; ++l) lanes[i][l] += wide[l] * x[p + l];
    }
  for (int i = 0; i < kLines; ++i) {
    C* const sums = lanes[i];
    for (std::int64_t q = p; q < k; ++q) sums[q - p] += static_cast<C>(lines[i * line + q]) * x[q];
    for (int half = kLineLanes / 2; half > 0; half /= 2)
      for (int l = 0; l < half; ++l) sums[l] += sums[l + half];
    c[i * c_line] = sums[0];
  }
}

#if defined(__x86_64__)
#define KILN_SUMS_AVX2 __attribute__((target("avx2,fma,f16c")))
#define KILN_SUMS_AVX512 \
  __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,f16c,prefer-vector-width=512")))

// ---- AVX2: two lines and one vector at a time fill half of the registers, whatever the type ----

KILN_SUMS_AVX2 inline __m256 load8(const float* from) { return _mm256_loadu_ps(from); }
KILN_SUMS_AVX2 inline __m256 load8(const float16* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
KILN_SUMS_AVX2 inline __m256 load8(const bfloat16* from) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

template <class T>
KILN_SUMS_AVX2 void sums_avx2(std::int64_t k, const T* lines, std::int64_t line, const float* x,
                              std::int64_t x_row, float* c, std::int64_t c_line, std::int64_t) {
  __m256 acc[kLines][2] = {};
  const auto whole = k / kLineLanes * kLineLanes;
  for (std::int64_t p = 0; p < whole; p += kLineLanes)
    for (int part = 0; part < 2; ++part) {
      const __m256 y = load8(x + p + 8 * part);
      for (int i = 0; i < kLines; ++i)
        acc[i][part] = _mm256_fmadd_ps(load8(lines + i * line + p + 8 * part), y, acc[i][part]);
    }
  if (whole < k) {
    const Padded<T, kLines> last(lines + whole, line, k - whole);
    const Padded<float, 1> factor(x + whole, x_row, k - whole);
    for (int part = 0; part < 2; ++part)
      for (int i = 0; i < kLines; ++i)
        acc[i][part] =
            _mm256_fmadd_ps(load8(last.at[i] + 8 * part), load8(factor.at[0] + 8 * part), acc[i][part]);
  }
  __m128 four[kLines];
  for (int i = 0; i < kLines; ++i) {
    const __m256 eight = _mm256_add_ps(acc[i][0], acc[i][1]);
    four[i] = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  }
  _MM_TRANSPOSE4_PS(four[0], four[1], four[2], four[3]);
  const __m128 sums = _mm_add_ps(_mm_add_ps(four[0], four[2]), _mm_add_ps(four[1], four[3]));
  float out[kLines];
  _mm_storeu_ps(out, sums);
  for (int i = 0; i < kLines; ++i) c[i * c_line] = out[i];
}

KILN_SUMS_AVX2 void sums_of_doubles_avx2(std::int64_t k, const double* lines, std::int64_t line,
                                         const double* x, std::int64_t x_row, double* c, std::int64_t c_line,
                                         std::int64_t) {
  constexpr int kParts = 4, kPair = 2;
  const auto whole = k / kLineLanes * kLineLanes;
  const Padded<double, kLines> last(lines + whole, line, k - whole);
  const Padded<double, 1> factor(x + whole, x_row, k - whole);
  for (int first = 0; first < kLines; first += kPair) {
    __m256d acc[kPair][kParts] = {};
    for (std::int64_t p = 0; p < k; p += kLineLanes)
      for (int part = 0; part < kParts; ++part) {
        const __m256d y = _mm256_loadu_pd((p < whole ? x + p : factor.at[0]) + 4 * part);
        for (int i = 0; i < kPair; ++i) {
          const double* const at = p < whole ? lines + (first + i) * line + p : last.at[first + i];
          acc[i][part] = _mm256_fmadd_pd(_mm256_loadu_pd(at + 4 * part), y, acc[i][part]);
        }
      }
    for (int i = 0; i < kPair; ++i) {
      const __m256d four =
          _mm256_add_pd(_mm256_add_pd(acc[i][0], acc[i][2]), _mm256_add_pd(acc[i][1], acc[i][3]));
      const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
      c[(first + i) * c_line] = _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
    }
  }
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12: of its own header's undefined registers

// ---- AVX-512: four lines and up to four vectors, 16 of 32 registers ----

KILN_SUMS_AVX512 inline __m512 load16(const float* from, __mmask16 some) {
  return _mm512_maskz_loadu_ps(some, from);
}
KILN_SUMS_AVX512 inline __m512 load16(const float16* from, __mmask16 some) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(some, from));
}
KILN_SUMS_AVX512 inline __m512 load16(const bfloat16* from, __mmask16 some) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
KILN_SUMS_AVX512 inline __mmask16 lanes_left(std::int64_t n) {
  return static_cast<__mmask16>(n >= kLineLanes ? 0xffff : (1 << n) - 1);
}

/// Of 16 partial sums each of two lines: eight of each.
KILN_SUMS_AVX512 inline __m512 fold_to_eights(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}
/// Of 16 partial sums each of four lines: four of each, in the lines' order.
KILN_SUMS_AVX512 inline __m512 fold_to_fours(const __m512 (&acc)[kLines]) {
  const __m512 low = fold_to_eights(acc[0], acc[1]), high = fold_to_eights(acc[2], acc[3]);
  return _mm512_add_ps(_mm512_shuffle_f32x4(low, high, 0x88), _mm512_shuffle_f32x4(low, high, 0xdd));
}

/// Four sums of a vector each: vector j of `sums` at 4·j. `fours`: as fold_to_fours has them.
template <int J>
KILN_SUMS_AVX512 inline void fold_fours(const __m512 (&fours)[J], float* sums) {
  // Lines lie along the 128-bit parts of a register, partial sums within a part.
  __m512 twos[(J + 1) / 2];
  for (int j = 0; j < J; j += 2) {
    const __m512 a = fours[j], b = fours[std::min(j + 1, J - 1)];
    twos[j / 2] = _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
  }
  const __m512 a = twos[0], b = twos[(J - 1) / 2];
  // a part has the line's sums of vectors 0 to 3
  const __m512 ones = _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
  const __m512i by_vector = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  _mm512_storeu_ps(sums, _mm512_permutexvar_ps(by_vector, ones));
}

template <class T, int J>
KILN_SUMS_AVX512 void sums_avx512(std::int64_t k, const T* lines, std::int64_t line, const float* x,
                                  std::int64_t x_row, float* c, std::int64_t c_line, std::int64_t c_vector) {
  __m512 acc[J][kLines] = {};
  for (std::int64_t p = 0; p < k; p += kLineLanes) {
    const __mmask16 some = lanes_left(k - p);
    __m512 at[kLines];
    _Pragma("GCC unroll 4") for (int i = 0; i < kLines; ++i) at[i] = load16(lines + i * line + p, some);
    _Pragma("GCC unroll 4") for (int j = 0; j < J; ++j) {
      const __m512 y = load16(x + j * x_row + p, some);
      _Pragma("GCC unroll 4") for (int i = 0; i < kLines; ++i) acc[j][i] =
          _mm512_fmadd_ps(at[i], y, acc[j][i]);
    }
  }
  __m512 fours[J];
  _Pragma("GCC unroll 4") for (int j = 0; j < J; ++j) fours[j] = fold_to_fours(acc[j]);
  alignas(64) float sums[kLines * kMostVectors];
  fold_fours<J>(fours, sums);
  if (c_line == 1) {
    _Pragma("GCC unroll 4") for (int j = 0; j < J; ++j)
        _mm_storeu_ps(c + j * c_vector, _mm_load_ps(sums + kLines * j));
    return;
  }
  for (int j = 0; j < J; ++j)
    for (int i = 0; i < kLines; ++i) c[i * c_line + j * c_vector] = sums[kLines * j + i];
}

template <int J>
KILN_SUMS_AVX512 void sums_of_doubles_avx512(std::int64_t k, const double* lines, std::int64_t line,
                                             const double* x, std::int64_t x_row, double* c,
                                             std::int64_t c_line, std::int64_t c_vector) {
  __m512d acc[J][kLines][2] = {};
  for (std::int64_t p = 0; p < k; p += kLineLanes) {
    const __mmask16 some = lanes_left(k - p);
    _Pragma("GCC unroll 2") for (int part = 0; part < 2; ++part) {
      const auto half = static_cast<__mmask8>(some >> 8 * part);
      __m512d at[kLines];
      _Pragma("GCC unroll 4") for (int i = 0; i < kLines; ++i) at[i] =
          _mm512_maskz_loadu_pd(half, lines + i * line + p + 8 * part);
      _Pragma("GCC unroll 2") for (int j = 0; j < J; ++j) {
        const __m512d y = _mm512_maskz_loadu_pd(half, x + j * x_row + p + 8 * part);
        _Pragma("GCC unroll 4") for (int i = 0; i < kLines; ++i) acc[j][i][part] =
            _mm512_fmadd_pd(at[i], y, acc[j][i][part]);
      }
    }
  }
  _Pragma("GCC unroll 2") for (int j = 0; j < J; ++j) {
    __m512d fours[2];  // two lines each
    _Pragma("GCC unroll 2") for (int i = 0; i < kLines; i += 2) {
      const __m512d a = _mm512_add_pd(acc[j][i][0], acc[j][i][1]),
                    b = _mm512_add_pd(acc[j][i + 1][0], acc[j][i + 1][1]);
      fours[i / 2] = _mm512_add_pd(_mm512_shuffle_f64x2(a, b, 0x44), _mm512_shuffle_f64x2(a, b, 0xee));
    }
    const __m512d twos = _mm512_add_pd(_mm512_shuffle_f64x2(fours[0], fours[1], 0x88),
                                       _mm512_shuffle_f64x2(fours[0], fours[1], 0xdd));
    const __m512d ones = _mm512_add_pd(twos, _mm512_permute_pd(twos, 0x55));
    const __m256d sums =
        _mm512_castpd512_pd256(_mm512_permutexvar_pd(_mm512_setr_epi64(0, 2, 4, 6, 0, 2, 4, 6), ones));
    double out[kLines];
    _mm256_storeu_pd(out, sums);
    for (int i = 0; i < kLines; ++i) c[i * c_line + j * c_vector] = out[i];
  }
}
#pragma GCC diagnostic pop
#endif

}  // namespace

SumLevel best_sum_level() {
#if defined(__x86_64__)
  static const SumLevel level = [] {
    const bool avx2 =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
    return avx2 && avx512 ? SumLevel::Avx512 : avx2 ? SumLevel::Avx2 : SumLevel::Base;
  }();
  return level;
#else
  return SumLevel::Base;
#endif
}

template <class T>
LineSums<T> line_sums(int vectors, [[maybe_unused]] SumLevel level) {
#if defined(__x86_64__)
  if constexpr (std::is_same_v<T, double>) {
    if (level == SumLevel::Avx512)
      return vectors == 1 ? sums_of_doubles_avx512<1> : vectors == 2 ? sums_of_doubles_avx512<2> : nullptr;
    if (level == SumLevel::Avx2) return vectors == 1 ? sums_of_doubles_avx2 : nullptr;
  } else {
    if (level == SumLevel::Avx512) {
      constexpr LineSums<T> kAll[] = {sums_avx512<T, 1>, sums_avx512<T, 2>, sums_avx512<T, 3>,
                                      sums_avx512<T, 4>};
      return kAll[vectors - 1];
    }
    if (level == SumLevel::Avx2) return vectors == 1 ? sums_avx2<T> : nullptr;
  }
#endif
  return vectors == 1 ? sums_base<T> : nullptr;
}
template LineSums<float> line_sums<float>(int, SumLevel);
template LineSums<double> line_sums<double>(int, SumLevel);
template LineSums<float16> line_sums<float16>(int, SumLevel);
template LineSums<bfloat16> line_sums<bfloat16>(int, SumLevel);

}  // namespace kiln::cpu
