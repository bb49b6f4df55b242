#include "library/cpu/gemm_pairs.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kiln::cpu {
namespace {

#if defined(__x86_64__)
#define KILN_PAIRS                                                                                \
  __attribute__((optimize("O3"), target("avx512f,avx512dq,avx512vl,avx512bw,avx512bf16,avx2,fma," \
                                        "prefer-vector-width=512")))

template <int kRows, int kVectors>
KILN_PAIRS void sums_of(std::int64_t pairs, const std::uint32_t* a, const std::uint32_t* b, float* c,
                        std::int64_t ldc, bool first) {
  __m512 acc[kRows][kVectors];
  _Pragma("GCC unroll 16") for (int i = 0; i < kRows; ++i)
      _Pragma("GCC unroll 2") for (int j = 0; j < kVectors; ++j) acc[i][j] =
          first ? _mm512_setzero_ps() : _mm512_loadu_ps(c + i * ldc + 16 * j);
  for (std::int64_t p = 0; p < pairs; ++p, a += PairMicro::kRows, b += PairMicro::kColumns) {
    __m512bh at[kVectors];
    _Pragma("GCC unroll 2") for (int j = 0; j < kVectors; ++j) at[j] =
        reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + 16 * j));
    _Pragma("GCC unroll 16") for (int i = 0; i < kRows; ++i) {
      const auto x = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(a[i])));
      _Pragma("GCC unroll 2") for (int j = 0; j < kVectors; ++j) acc[i][j] =
          _mm512_dpbf16_ps(acc[i][j], x, at[j]);
    }
  }
  _Pragma("GCC unroll 16") for (int i = 0; i < kRows; ++i)
      _Pragma("GCC unroll 2") for (int j = 0; j < kVectors; ++j)
          _mm512_storeu_ps(c + i * ldc + 16 * j, acc[i][j]);
}

bool has_pairs() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512bf16");
}
#endif

std::uint32_t pair(bfloat16 first, bfloat16 second) {
  return first.bits | static_cast<std::uint32_t>(second.bits) << 16;
}

/// Whole pairs of lines whose steps are adjacent: squares of four by four, transposed in registers.
void pack_four(const bfloat16* const (&lines)[4], std::int64_t width, std::int64_t pairs, std::uint32_t* to) {
  typedef std::uint32_t V __attribute__((vector_size(16)));
  std::int64_t p = 0;
  for (; p + 4 <= pairs; p += 4) {
    V rows[4];
    for (int i = 0; i < 4; ++i) std::memcpy(&rows[i], lines[i] + 2 * p, sizeof(V));
    const V ab0 = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5),
            ab1 = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
    const V cd0 = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5),
            cd1 = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
    const V out[] = {
        __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5), __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7),
        __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5), __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7)};
    for (std::int64_t i = 0; i < 4; ++i) std::memcpy(to + (p + i) * width, &out[i], sizeof(V));
  }
  for (; p < pairs; ++p)
    for (int i = 0; i < 4; ++i) to[p * width + i] = pair(lines[i][2 * p], lines[i][2 * p + 1]);
}

}  // namespace

const PairMicro* pair_micro() {
#if defined(__x86_64__)
#define KILN_ROW(ROWS) {sums_of<ROWS, 1>, sums_of<ROWS, 2>}
  static const PairMicro micro{{KILN_ROW(1), KILN_ROW(2), KILN_ROW(3), KILN_ROW(4), KILN_ROW(5), KILN_ROW(6),
                                KILN_ROW(7), KILN_ROW(8), KILN_ROW(9), KILN_ROW(10), KILN_ROW(11),
                                KILN_ROW(12), KILN_ROW(13), KILN_ROW(14)}};
#undef KILN_ROW
  static const bool there = has_pairs();
  return there ? &micro : nullptr;
#else
  return nullptr;
#endif
}

void pack_pairs(const bfloat16* from, Lines across, Lines along, std::int64_t used, std::int64_t width,
                std::int64_t depth, std::uint32_t* to) {
  const std::int64_t line = across.stride, step = along.stride, pairs = depth / 2;
  from += across[0] + along[0];
  if (used < width) std::fill(to, to + (depth + 1) / 2 * width, 0u);
  std::int64_t w = 0;
  if (step == 1 && used >= 4)
    for (; w < used; w += 4) {  // the last four lines, some of them once more
      const std::int64_t first = std::min(w, used - 4);
      const bfloat16* const at = from + first * line;
      pack_four({at, at + line, at + 2 * line, at + 3 * line}, width, pairs, to + first);
    }
  for (std::int64_t p = 0; p < pairs && w < used; ++p) {
    const bfloat16 *const first = from + 2 * p * step, *const second = first + step;
    std::uint32_t* const at = to + p * width;
    if (line == 1)
      for (std::int64_t i = 0; i < used; ++i) at[i] = pair(first[i], second[i]);
    else
      for (std::int64_t i = 0; i < used; ++i) at[i] = pair(first[i * line], second[i * line]);
  }
  if (depth % 2 != 0)
    for (std::int64_t i = 0; i < used; ++i) to[pairs * width + i] = from[i * line + (depth - 1) * step].bits;
}

}  // namespace kiln::cpu
