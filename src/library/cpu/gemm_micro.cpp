// Each variant is a plain function with a target attribute: templates and inline helpers would be lowered for
// the baseline instruction set before they are inlined. The accumulators fill the register file (28 of 32 in
// AVX-512, 12 of 16 in AVX2) and the two columns of b and the broadcast element of a take the rest.
#include "library/cpu/gemm_micro.h"

#include <kiln/dtype.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kiln::cpu {
namespace {

constexpr int kWideVectors = 8, kLongRows = 8;
constexpr int kSecondCache = 2;  // where what is asked for goes, for __builtin_prefetch

// Rows of b that are so many bytes apart lie in pages of their own, along which no processor fetches ahead:
// the columns of the next call are asked for meanwhile, where there are multiplications enough to wait for.
constexpr int kFarApart = 4096, kFewestFetch = 4;

#define KILN_MICRO(NAME, ATTRIBUTE, TYPE, BYTES, MR, MULTIPLY_ADD)                                         \
  ATTRIBUTE void NAME(std::int64_t k, const TYPE* a, const TYPE* b, TYPE* c, std::int64_t ldc, bool first, \
                      const Ahead& ahead) {                                                                \
    typedef TYPE V __attribute__((vector_size(BYTES)));                                                    \
    constexpr int kLanes = BYTES / sizeof(TYPE);                                                           \
    V acc[MR][2];                                                                                          \
    _Pragma("GCC unroll 16") for (int i = 0; i < MR; ++i) {                                                \
      acc[i][0] = first ? V{} : *reinterpret_cast<const V*>(c + i * ldc);                                  \
      acc[i][1] = first ? V{} : *reinterpret_cast<const V*>(c + i * ldc + kLanes);                         \
    }                                                                                                      \
    const char* a_ahead = static_cast<const char*>(ahead.a ? ahead.a : a);                                 \
    const char* b_ahead = static_cast<const char*>(ahead.b ? ahead.b : b);                                 \
    const std::int64_t a_step = ahead.a_step, b_step = ahead.b_step;                                       \
    for (std::int64_t p = 0; p < k; ++p, a += MR, b += 2 * kLanes) {                                       \
      const V b0 = *reinterpret_cast<const V*>(b), b1 = *reinterpret_cast<const V*>(b + kLanes);           \
      __builtin_prefetch(a_ahead, 0, kSecondCache);                                                        \
      __builtin_prefetch(b_ahead, 0, kSecondCache);                                                        \
      a_ahead += a_step, b_ahead += b_step;                                                                \
      _Pragma("GCC unroll 16") for (int i = 0; i < MR; ++i) {                                              \
        const V x = a[i] - V{}; /* a broadcast: x - 0 folds, x + 0 would not */                            \
        acc[i][0] = MULTIPLY_ADD(x, b0, acc[i][0]);                                                        \
        acc[i][1] = MULTIPLY_ADD(x, b1, acc[i][1]);                                                        \
      }                                                                                                    \
    }                                                                                                      \
    _Pragma("GCC unroll 16") for (int i = 0; i < MR; ++i) {                                                \
      *reinterpret_cast<V*>(c + i * ldc) = acc[i][0];                                                      \
      *reinterpret_cast<V*>(c + i * ldc + kLanes) = acc[i][1];                                             \
    }                                                                                                      \
  }

// The same on operands where they are, of ROWS rows and VECTORS vectors of columns. Rows of a are four to a
// pointer, whose offsets an address can name: a pointer for each row would leave none of the registers for
// anything else.
#define KILN_DIRECT(NAME, ATTRIBUTE, TYPE, BYTES, ROWS, VECTORS, MULTIPLY_ADD)                              \
  ATTRIBUTE void NAME(std::int64_t k, const TYPE* a, std::int64_t a_row, std::int64_t a_col, const TYPE* b, \
                      std::int64_t b_row, TYPE* c, std::int64_t ldc, bool first, bool fetch) {              \
    typedef TYPE V __attribute__((vector_size(BYTES), aligned(alignof(TYPE))));                             \
    typedef TYPE W __attribute__((vector_size(BYTES)));                                                     \
    constexpr int kLanes = BYTES / sizeof(TYPE), kQuads = (ROWS + 3) / 4;                                   \
    const bool far = fetch && ROWS >= kFewestFetch && b_row >= kFarApart / static_cast<int>(sizeof(TYPE));  \
    W acc[ROWS][VECTORS];                                                                                   \
    const TYPE* quad[kQuads];                                                                               \
    _Pragma("GCC unroll 16") for (int q = 0; q < kQuads; ++q) quad[q] = a + 4 * q * a_row;                  \
    _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; ++i)                                                 \
        _Pragma("GCC unroll 16") for (int j = 0; j < VECTORS; ++j) acc[i][j] =                              \
            first ? W{} : *reinterpret_cast<const V*>(c + i * ldc + j * kLanes);                            \
    for (std::int64_t p = 0; p < k; ++p, b += b_row) {                                                      \
      W at[VECTORS];                                                                                        \
      _Pragma("GCC unroll 16") for (int j = 0; j < VECTORS; ++j) at[j] =                                    \
          *reinterpret_cast<const V*>(b + j * kLanes);                                                      \
      if (far)                                                                                              \
        _Pragma("GCC unroll 16") for (int j = VECTORS; j < 2 * VECTORS; ++j)                                \
            __builtin_prefetch(b + j * kLanes);                                                             \
      _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; ++i) {                                             \
        const W x = quad[i / 4][i % 4 * a_row] - W{};                                                       \
        _Pragma("GCC unroll 16") for (int j = 0; j < VECTORS; ++j) acc[i][j] =                              \
            MULTIPLY_ADD(x, at[j], acc[i][j]);                                                              \
      }                                                                                                     \
      _Pragma("GCC unroll 16") for (int q = 0; q < kQuads; ++q) quad[q] += a_col;                           \
    }                                                                                                       \
    _Pragma("GCC unroll 16") for (int i = 0; i < ROWS; ++i)                                                 \
            _Pragma("GCC unroll 16") for (int j = 0; j < VECTORS; ++j) *                                    \
        reinterpret_cast<V*>(c + i * ldc + j * kLanes) = acc[i][j];                                         \
  }
// One vector of FEW bytes, and one and two of BYTES.
#define KILN_DIRECT_ROWS(NAME, ATTRIBUTE, TYPE, BYTES, FEW, ROWS, MULTIPLY_ADD, ADD_FEW) \
  KILN_DIRECT(NAME##_##ROWS##_0, ATTRIBUTE, TYPE, FEW, ROWS, 1, ADD_FEW)                 \
  KILN_DIRECT(NAME##_##ROWS##_1, ATTRIBUTE, TYPE, BYTES, ROWS, 1, MULTIPLY_ADD)          \
  KILN_DIRECT(NAME##_##ROWS##_2, ATTRIBUTE, TYPE, BYTES, ROWS, 2, MULTIPLY_ADD)
// All heights up to 4, 6 (AVX2) and 14 (AVX-512).
#define KILN_DIRECT_TO_4(NAME, ATTRIBUTE, TYPE, BYTES, FEW, MULTIPLY_ADD, ADD_FEW) \
  KILN_DIRECT_ROWS(NAME, ATTRIBUTE, TYPE, BYTES, FEW, 1, MULTIPLY_ADD, ADD_FEW)    \
  KILN_DIRECT_ROWS(NAME, ATTRIBUTE, TYPE, BYTES, FEW, 2, MULTIPLY_ADD, ADD_FEW)    \
  KILN_DIRECT_ROWS(NAME, ATTRIBUTE, TYPE, BYTES, FEW, 3, MULTIPLY_ADD, ADD_FEW)    \
  KILN_DIRECT_ROWS(NAME, ATTRIBUTE, TYPE, BYTES, FEW, 4, MULTIPLY_ADD, ADD_FEW)
#define KILN_DIRECT_TO_6(NAME, ATTRIBUTE, TYPE, BYTES, FEW, MULTIPLY_ADD, ADD_FEW) \
  KILN_DIRECT_TO_4(NAME, ATTRIBUTE, TYPE, BYTES, FEW, MULTIPLY_ADD, ADD_FEW)       \
  KILN_DIRECT_ROWS(NAME, ATTRIBUTE, TYPE, BYTES, FEW, 5, MULTIPLY_ADD, ADD_FEW)    \
  KILN_DIRECT_ROWS(NAME, ATTRIBUTE, TYPE, BYTES, FEW, 6, MULTIPLY_ADD, ADD_FEW)
#define KILN_DIRECT_TO_14(NAME, ATTRIBUTE, TYPE, BYTES, FEW, MULTIPLY_ADD, ADD_FEW) \
  KILN_DIRECT_TO_6(NAME, ATTRIBUTE, TYPE, BYTES, FEW, MULTIPLY_ADD, ADD_FEW)        \
  KILN_DIRECT_ROWS(NAME, ATTRIBUTE, TYPE, BYTES, FEW, 7, MULTIPLY_ADD, ADD_FEW)     \
  KILN_DIRECT_ROWS(NAME, ATTRIBUTE, TYPE, BYTES, FEW, 8, MULTIPLY_ADD, ADD_FEW)     \
  KILN_DIRECT_ROWS(NAME, ATTRIBUTE, TYPE, BYTES, FEW, 9, MULTIPLY_ADD, ADD_FEW)     \
  KILN_DIRECT_ROWS(NAME, ATTRIBUTE, TYPE, BYTES, FEW, 10, MULTIPLY_ADD, ADD_FEW)    \
  KILN_DIRECT_ROWS(NAME, ATTRIBUTE, TYPE, BYTES, FEW, 11, MULTIPLY_ADD, ADD_FEW)    \
  KILN_DIRECT_ROWS(NAME, ATTRIBUTE, TYPE, BYTES, FEW, 12, MULTIPLY_ADD, ADD_FEW)    \
  KILN_DIRECT_ROWS(NAME, ATTRIBUTE, TYPE, BYTES, FEW, 13, MULTIPLY_ADD, ADD_FEW)    \
  KILN_DIRECT_ROWS(NAME, ATTRIBUTE, TYPE, BYTES, FEW, 14, MULTIPLY_ADD, ADD_FEW)
#define KILN_NAMES(NAME, ROWS) {NAME##_##ROWS##_0, NAME##_##ROWS##_1, NAME##_##ROWS##_2}
#define KILN_NAMES_TO_4(NAME) \
  KILN_NAMES(NAME, 1), KILN_NAMES(NAME, 2), KILN_NAMES(NAME, 3), KILN_NAMES(NAME, 4)
#define KILN_NAMES_TO_6(NAME) KILN_NAMES_TO_4(NAME), KILN_NAMES(NAME, 5), KILN_NAMES(NAME, 6)
#define KILN_NAMES_TO_14(NAME)                                                                \
  KILN_NAMES_TO_6(NAME), KILN_NAMES(NAME, 7), KILN_NAMES(NAME, 8), KILN_NAMES(NAME, 9),       \
      KILN_NAMES(NAME, 10), KILN_NAMES(NAME, 11), KILN_NAMES(NAME, 12), KILN_NAMES(NAME, 13), \
      KILN_NAMES(NAME, 14)
// One row of a: eight vectors of columns.
#define KILN_WIDE(NAME, ATTRIBUTE, TYPE, BYTES, MULTIPLY_ADD)                                                \
  ATTRIBUTE void NAME(std::int64_t k, const TYPE* x, const TYPE* b, std::int64_t b_row, TYPE* c) {           \
    typedef TYPE V __attribute__((vector_size(BYTES), aligned(alignof(TYPE))));                              \
    typedef TYPE W __attribute__((vector_size(BYTES)));                                                      \
    constexpr int kLanes = BYTES / sizeof(TYPE);                                                             \
    W acc[kWideVectors] = {};                                                                                \
    for (std::int64_t p = 0; p < k; ++p, b += b_row) {                                                       \
      const W y = x[p] - W{};                                                                                \
      _Pragma("GCC unroll 16") for (int j = 0; j < kWideVectors; ++j) {                                      \
        const W at = *reinterpret_cast<const V*>(b + j * kLanes);                                            \
        acc[j] = MULTIPLY_ADD(y, at, acc[j]);                                                                \
      }                                                                                                      \
    }                                                                                                        \
    _Pragma("GCC unroll 16") for (int j = 0; j < kWideVectors; ++j) * reinterpret_cast<V*>(c + j * kLanes) = \
        acc[j];                                                                                              \
  }
// The same along long rows of b, some rows at a time: columns of rows that are pages apart would be read by
// lines of their own. Each sum is that of the function above, to the bit.
#define KILN_LONG(NAME, ATTRIBUTE, TYPE, BYTES, MULTIPLY_ADD)                                           \
  ATTRIBUTE void NAME(std::int64_t k, const TYPE* x, const TYPE* b, std::int64_t b_row, std::int64_t n, \
                      TYPE* c) {                                                                        \
    typedef TYPE V __attribute__((vector_size(BYTES), aligned(alignof(TYPE))));                         \
    typedef TYPE W __attribute__((vector_size(BYTES)));                                                 \
    constexpr int kLanes = BYTES / sizeof(TYPE);                                                        \
    for (std::int64_t p = 0; p < k; p += kLongRows) {                                                   \
      W y[kLongRows];                                                                                   \
      const TYPE* row[kLongRows];                                                                       \
      const bool whole = p + kLongRows <= k;                                                            \
      _Pragma("GCC unroll 16") for (int i = 0; i < kLongRows; ++i) {                                    \
        const std::int64_t at = p + i < k ? p + i : p;                                                  \
        y[i] = x[at] - W{};                                                                             \
        row[i] = b + at * b_row;                                                                        \
      }                                                                                                 \
      const std::int64_t next = p + 2 * kLongRows <= k ? kLongRows * b_row : 0;                         \
      for (std::int64_t j = 0; j < n; j += kLanes) {                                                    \
        W acc = p == 0 ? W{} : *reinterpret_cast<const V*>(c + j);                                      \
        if (whole) {                                                                                    \
          _Pragma("GCC unroll 16") for (int i = 0; i < kLongRows; ++i) {                                \
            const W at = *reinterpret_cast<const V*>(row[i] + j);                                       \
            __builtin_prefetch(row[i] + next + j, 0, kSecondCache);                                     \
            acc = MULTIPLY_ADD(y[i], at, acc);                                                          \
          }                                                                                             \
        } else {                                                                                        \
          for (int i = 0; i < k - p; ++i) {                                                             \
            const W at = *reinterpret_cast<const V*>(row[i] + j);                                       \
            acc = MULTIPLY_ADD(y[i], at, acc);                                                          \
          }                                                                                             \
        }                                                                                               \
        *reinterpret_cast<V*>(c + j) = acc;                                                             \
      }                                                                                                 \
    }                                                                                                   \
  }
#define KILN_MICROS(NAME, ATTRIBUTE, TYPE, BYTES, FEW, MR, MULTIPLY_ADD, ADD_FEW)        \
  KILN_MICRO(NAME, ATTRIBUTE, TYPE, BYTES, MR, MULTIPLY_ADD)                             \
  KILN_DIRECT_TO_##MR(NAME##_direct, ATTRIBUTE, TYPE, BYTES, FEW, MULTIPLY_ADD, ADD_FEW) \
      KILN_WIDE(NAME##_wide, ATTRIBUTE, TYPE, BYTES, MULTIPLY_ADD)                       \
          KILN_LONG(NAME##_long, ATTRIBUTE, TYPE, BYTES, MULTIPLY_ADD)

#define KILN_PLAIN(x, y, z) ((x) * (y) + (z))
#define KILN_MICROS_PLAIN(NAME, ATTRIBUTE, TYPE, BYTES, FEW, MR) \
  KILN_MICROS(NAME, ATTRIBUTE, TYPE, BYTES, FEW, MR, KILN_PLAIN, KILN_PLAIN)
#define KILN_MICRO_PLAIN(SUFFIX, ATTRIBUTE, BYTES, FEW, MR)                       \
  KILN_MICROS_PLAIN(micro_u32_##SUFFIX, ATTRIBUTE, std::uint32_t, BYTES, FEW, MR) \
  KILN_MICROS_PLAIN(micro_u64_##SUFFIX, ATTRIBUTE, std::uint64_t, BYTES, FEW, MR)

KILN_MICROS_PLAIN(micro_f32_base, , float, 16, 16, 4)
KILN_MICROS_PLAIN(micro_f64_base, , double, 16, 16, 4)
KILN_MICRO_PLAIN(base, , 16, 16, 4)

#if defined(__x86_64__)
#define KILN_AVX2 __attribute__((target("avx2,fma,f16c")))
#define KILN_AVX512 \
  __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,f16c,prefer-vector-width=512")))
KILN_MICROS_PLAIN(micro_f32_strict_avx2, KILN_AVX2, float, 32, 16, 6)
KILN_MICROS_PLAIN(micro_f64_strict_avx2, KILN_AVX2, double, 32, 16, 6)
KILN_MICROS_PLAIN(micro_f32_strict_avx512, KILN_AVX512, float, 64, 32, 14)
KILN_MICROS_PLAIN(micro_f64_strict_avx512, KILN_AVX512, double, 64, 32, 14)
KILN_MICROS(micro_f32_avx2, KILN_AVX2, float, 32, 16, 6, _mm256_fmadd_ps, _mm_fmadd_ps)
KILN_MICROS(micro_f64_avx2, KILN_AVX2, double, 32, 16, 6, _mm256_fmadd_pd, _mm_fmadd_pd)
KILN_MICRO_PLAIN(avx2, KILN_AVX2, 32, 16, 6)
KILN_MICROS(micro_f32_avx512, KILN_AVX512, float, 64, 32, 14, _mm512_fmadd_ps, _mm256_fmadd_ps)
KILN_MICROS(micro_f64_avx512, KILN_AVX512, double, 64, 32, 14, _mm512_fmadd_pd, _mm256_fmadd_pd)
KILN_MICRO_PLAIN(avx512, KILN_AVX512, 64, 32, 14)

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
}
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool has_f16c() { return has_avx2() && __builtin_cpu_supports("f16c"); }

// Runs of n elements of 16 bits each, one after the other, as floats. The last elements of a run go together
// with some before them: loads of what a masked store wrote would wait until it is in the cache.
#define KILN_WIDEN(NAME, ATTRIBUTE, WIDE, ONE, FOUR, EIGHT, SIXTEEN)                                   \
  ATTRIBUTE void NAME(const std::uint16_t* from, std::int64_t step, std::int64_t runs, std::int64_t n, \
                      float* to, std::int64_t to_step) {                                               \
    for (; runs > 0; --runs, from += step, to += to_step) {                                            \
      const std::int64_t lanes = n >= WIDE ? WIDE : n >= 8 ? 8 : 4;                                    \
      if (n < 4) {                                                                                     \
        for (std::int64_t i = 0; i < n; ++i) ONE(from + i, to + i);                                    \
        continue;                                                                                      \
      }                                                                                                \
      for (std::int64_t i = 0; i < n; i += lanes) {                                                    \
        const std::int64_t at = i + lanes <= n ? i : n - lanes;                                        \
        if (lanes == 4)                                                                                \
          FOUR(from + at, to + at);                                                                    \
        else if (lanes == 8)                                                                           \
          EIGHT(from + at, to + at);                                                                   \
        else                                                                                           \
          SIXTEEN(from + at, to + at);                                                                 \
      }                                                                                                \
    }                                                                                                  \
  }
#define KILN_LOAD_4(from) _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))
#define KILN_LOAD_8(from) _mm_loadu_si128(reinterpret_cast<const __m128i*>(from))
#define KILN_LOAD_16(from) _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))
#define KILN_HALVES_1(from, to) _mm_store_ss(to, _mm_cvtph_ps(_mm_cvtsi32_si128(*(from))))
#define KILN_BFLOATS_1(from, to) *(to) = detail::bfloat_to_float(*(from))
#define KILN_HALVES_4(from, to) _mm_storeu_ps(to, _mm_cvtph_ps(KILN_LOAD_4(from)))
#define KILN_HALVES_8(from, to) _mm256_storeu_ps(to, _mm256_cvtph_ps(KILN_LOAD_8(from)))
#define KILN_HALVES_16(from, to) _mm512_storeu_ps(to, _mm512_cvtph_ps(KILN_LOAD_16(from)))
#define KILN_BFLOATS_4(from, to) \
  _mm_storeu_ps(to, _mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(KILN_LOAD_4(from)), 16)))
#define KILN_BFLOATS_8(from, to) \
  _mm256_storeu_ps(to, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(KILN_LOAD_8(from)), 16)))
#define KILN_BFLOATS_16(from, to) \
  _mm512_storeu_ps(to, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(KILN_LOAD_16(from)), 16)))
KILN_WIDEN(widen_halves_avx512, KILN_AVX512, 16, KILN_HALVES_1, KILN_HALVES_4, KILN_HALVES_8, KILN_HALVES_16)
KILN_WIDEN(widen_halves_avx2, KILN_AVX2, 8, KILN_HALVES_1, KILN_HALVES_4, KILN_HALVES_8, KILN_HALVES_8)
KILN_WIDEN(widen_bfloats_avx512, KILN_AVX512, 16, KILN_BFLOATS_1, KILN_BFLOATS_4, KILN_BFLOATS_8,
           KILN_BFLOATS_16)
KILN_WIDEN(widen_bfloats_avx2, KILN_AVX2, 8, KILN_BFLOATS_1, KILN_BFLOATS_4, KILN_BFLOATS_8, KILN_BFLOATS_8)

#define KILN_COPY_PIECES(COUNT)                                                                     \
  KILN_AVX2 void copy_pieces_##COUNT(const std::uint32_t* const* pieces, const std::int64_t* steps, \
                                     std::int64_t step, std::int64_t depth, std::uint32_t* to,      \
                                     std::int64_t width) {                                          \
    const std::uint32_t* from[COUNT];                                                               \
    for (int j = 0; j < COUNT; ++j) from[j] = pieces[j];                                            \
    for (std::int64_t p = 0, at = 0; p < depth; ++p, at += step, to += width) {                     \
      if (steps) at = steps[p];                                                                     \
      _Pragma("GCC unroll 4") for (int j = 0; j < COUNT; ++j)                                       \
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 8 * j),                               \
                              _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from[j] + at)));  \
    }                                                                                               \
  }
KILN_COPY_PIECES(1)
KILN_COPY_PIECES(2)
KILN_COPY_PIECES(3)
KILN_COPY_PIECES(4)

/// Four steps of eight lines: two squares of four by four side by side.
KILN_AVX2 inline __attribute__((always_inline)) void pack_four_steps(const float* const* lines,
                                                                     std::int64_t p, float* to,
                                                                     std::int64_t width) {
  __m256 in[4];
  _Pragma("GCC unroll 4") for (int i = 0; i < 4; ++i) in[i] = _mm256_insertf128_ps(
      _mm256_castps128_ps256(_mm_loadu_ps(lines[i] + p)), _mm_loadu_ps(lines[i + 4] + p), 1);
  const __m256d low0 = _mm256_castps_pd(_mm256_unpacklo_ps(in[0], in[1])),
                low1 = _mm256_castps_pd(_mm256_unpackhi_ps(in[0], in[1])),
                high0 = _mm256_castps_pd(_mm256_unpacklo_ps(in[2], in[3])),
                high1 = _mm256_castps_pd(_mm256_unpackhi_ps(in[2], in[3]));
  _mm256_storeu_ps(to, _mm256_castpd_ps(_mm256_unpacklo_pd(low0, high0)));
  _mm256_storeu_ps(to + width, _mm256_castpd_ps(_mm256_unpackhi_pd(low0, high0)));
  _mm256_storeu_ps(to + 2 * width, _mm256_castpd_ps(_mm256_unpacklo_pd(low1, high1)));
  _mm256_storeu_ps(to + 3 * width, _mm256_castpd_ps(_mm256_unpackhi_pd(low1, high1)));
}

KILN_AVX2 void pack_eight_lines_avx2(const float* const* from, const std::int64_t* starts, std::int64_t runs,
                                     std::int64_t n, float* to, std::int64_t width) {
  const float* lines[8];
  _Pragma("GCC unroll 8") for (int i = 0; i < 8; ++i) lines[i] = from[i];
  for (std::int64_t r = 0; r < runs; ++r)
    for (std::int64_t p = 0; p < n; p += 4, to += 4 * width) pack_four_steps(lines, starts[r] + p, to, width);
}

KILN_AVX2 std::int64_t narrow_f16c(const float* from, std::uint16_t* to, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  return i;
}

/// The upper halves of eight floats, rounded, in 32 bits each; NaN stays NaN.
KILN_AVX2 inline __m256i rounded_bfloats(const float* from) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
  const __m256i nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  return _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet, nan), 16);
}

KILN_AVX2 std::int64_t narrow_bfloat_avx2(const float* from, std::uint16_t* to, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    // by halves of registers: 0-3, 8-11, 4-7, 12-15
    const __m256i packed = _mm256_packus_epi32(rounded_bfloats(from + i), rounded_bfloats(from + i + 8));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm256_permute4x64_epi64(packed, 0xd8));
  }
  return i;
}
#endif

template <class C>
Micro<C> choose([[maybe_unused]] const Micro<C>& avx512, [[maybe_unused]] const Micro<C>& avx2,
                const Micro<C>& base) {
#if defined(__x86_64__)
  if (has_avx512()) return avx512;
  if (has_avx2()) return avx2;
#endif
  return base;
}

}  // namespace

#define KILN_SET(NAME, TYPE, BYTES, FEW, MR)                                                             \
  Micro<TYPE> {                                                                                          \
    MR, 2 * BYTES / static_cast<int>(sizeof(TYPE)), FEW / static_cast<int>(sizeof(TYPE)),                \
        kWideVectors *BYTES / static_cast<int>(sizeof(TYPE)), NAME, {KILN_NAMES_TO_##MR(NAME##_direct)}, \
        NAME##_wide, NAME##_long                                                                         \
  }
#define KILN_BASE(NAME, TYPE) KILN_SET(micro_##NAME##_base, TYPE, 16, 16, 4)
#if defined(__x86_64__)
#define KILN_CHOOSE(TYPE, NAME, BASE)                             \
  choose<TYPE>(KILN_SET(micro_##NAME##_avx512, TYPE, 64, 32, 14), \
               KILN_SET(micro_##NAME##_avx2, TYPE, 32, 16, 6), KILN_BASE(BASE, TYPE))
#else
#define KILN_CHOOSE(TYPE, NAME, BASE) choose<TYPE>({}, {}, KILN_BASE(BASE, TYPE))
#endif

template <>
const Micro<float>& micro<float>(bool strict) {
  static const Micro<float> chosen = KILN_CHOOSE(float, f32, f32),
                            rounding = KILN_CHOOSE(float, f32_strict, f32);
  return strict ? rounding : chosen;
}
template <>
const Micro<double>& micro<double>(bool strict) {
  static const Micro<double> chosen = KILN_CHOOSE(double, f64, f64),
                             rounding = KILN_CHOOSE(double, f64_strict, f64);
  return strict ? rounding : chosen;
}
template <>
const Micro<std::uint32_t>& micro<std::uint32_t>(bool) {
  static const Micro<std::uint32_t> chosen = KILN_CHOOSE(std::uint32_t, u32, u32);
  return chosen;
}
template <>
const Micro<std::uint64_t>& micro<std::uint64_t>(bool) {
  static const Micro<std::uint64_t> chosen = KILN_CHOOSE(std::uint64_t, u64, u64);
  return chosen;
}

bool copy_pieces([[maybe_unused]] const std::uint32_t* const* pieces, [[maybe_unused]] int count,
                 [[maybe_unused]] const std::int64_t* steps, [[maybe_unused]] std::int64_t step,
                 [[maybe_unused]] std::int64_t depth, [[maybe_unused]] std::uint32_t* to,
                 [[maybe_unused]] std::int64_t width) {
#if defined(__x86_64__)
  static const bool avx2 = has_avx2();
  constexpr decltype(&copy_pieces_1) kAll[kMostPieces] = {copy_pieces_1, copy_pieces_2, copy_pieces_3,
                                                          copy_pieces_4};
  if (avx2) kAll[count - 1](pieces, steps, step, depth, to, width);
  return avx2;
#else
  return false;
#endif
}

bool pack_eight_lines([[maybe_unused]] const std::uint32_t* const* lines,
                      [[maybe_unused]] const std::int64_t* starts, [[maybe_unused]] std::int64_t runs,
                      [[maybe_unused]] std::int64_t n, [[maybe_unused]] std::uint32_t* to,
                      [[maybe_unused]] std::int64_t width) {
#if defined(__x86_64__)
  static const bool avx2 = has_avx2();
  if (avx2)
    pack_eight_lines_avx2(reinterpret_cast<const float* const*>(lines), starts, runs, n,
                          reinterpret_cast<float*>(to), width);
  return avx2;
#else
  return false;
#endif
}

void widen_halves(const std::uint16_t* from, std::int64_t step, std::int64_t runs, std::int64_t n, float* to,
                  std::int64_t to_step) {
#if defined(__x86_64__)
  static const bool avx512 = has_avx512(), f16c = has_f16c();
  if (avx512) return widen_halves_avx512(from, step, runs, n, to, to_step);
  if (f16c) return widen_halves_avx2(from, step, runs, n, to, to_step);
#endif
  for (; runs > 0; --runs, from += step, to += to_step)
    for (std::int64_t i = 0; i < n; ++i) to[i] = detail::half_to_float(from[i]);
}

void widen_bfloats(const std::uint16_t* from, std::int64_t step, std::int64_t runs, std::int64_t n, float* to,
                   std::int64_t to_step) {
#if defined(__x86_64__)
  static const bool avx512 = has_avx512(), avx2 = has_avx2();
  if (avx512) return widen_bfloats_avx512(from, step, runs, n, to, to_step);
  if (avx2) return widen_bfloats_avx2(from, step, runs, n, to, to_step);
#endif
  for (; runs > 0; --runs, from += step, to += to_step)
    for (std::int64_t i = 0; i < n; ++i) to[i] = detail::bfloat_to_float(from[i]);
}

void narrow_half(const float* from, std::uint16_t* to, std::int64_t n) {
  std::int64_t i = 0;
#if defined(__x86_64__)
  static const bool hardware = has_f16c();
  if (hardware) i = narrow_f16c(from, to, n);
#endif
  for (; i < n; ++i) to[i] = detail::float_to_half(from[i]);
}

void narrow_bfloat(const float* from, std::uint16_t* to, std::int64_t n) {
  std::int64_t i = 0;
#if defined(__x86_64__)
  static const bool hardware = has_avx2();
  if (hardware) i = narrow_bfloat_avx2(from, to, n);
#endif
  for (; i < n; ++i) to[i] = detail::float_to_bfloat(from[i]);
}

}  // namespace kiln::cpu
