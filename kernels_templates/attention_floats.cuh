// Attention's products of float32 by tensor cores that take 11 significant bits: a float is the sum of two
// such numbers, high and low, but for a last bit. A product is high · high + high · low + low · high; what is
// left out is 2^-22 of it. Sums of a tile begin at 0, those of the small products apart, and are added to
// what came before by the threads: the tensor cores cut what they add, which adds up over many tiles.
//
// A high part of infinity has no low one. So sums that are not finite are made once more by the threads, one
// factor after the other: short loops, which hardly ever run.
#pragma once

__device__ __forceinline__ void split(uint32 x, uint32& high, uint32& low) {
  high = x + 0x1000 & 0xffffe000;
  low = __float_as_uint(__uint_as_float(x) - __uint_as_float(high));
}
template <int N>
__device__ __forceinline__ void split(const uint32 (&x)[N], uint32 (&high)[N], uint32 (&low)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) split(x[i], high[i], low[i]);
}

__device__ __forceinline__ bool is_number(float x) { return fabsf(x) <= __int_as_float(0x7f7fffff); }

/// The four sums of a fragment that begin at `at`.
__device__ __forceinline__ float (&four(float& at))[4] { return reinterpret_cast<float(&)[4]>(at); }

/// The first operand of a step, of columns k and on, in two parts.
template <int Pitch>
__device__ __forceinline__ void load_split(uint32 q_at, int step, uint32 (&high)[kFragments][4],
                                           uint32 (&low)[kFragments][4]) {
#pragma unroll
  for (int f = 0; f < kFragments; ++f) {
    uint32 x[4];
    load_matrices<false>(x, q_at + f * 16 * Pitch + step * 32);
    split(x, high[f], low[f]);
  }
}

/// s = q kᵀ of rows that begin at q and at k.
template <int Steps, int Pitch>
__device__ __forceinline__ void float_scores(Scores& s, uint32 q, uint32 k) {
  const int lane = threadIdx.x % 32, g = lane / 4, column = lane % 4 * 2;
  const uint32 q_at = q + lane % 16 * Pitch + lane / 16 * 16;
  const uint32 k_at = k + (lane / 16 * 8 + lane % 8) * Pitch + lane / 8 % 2 * 16;
  Scores small;
#pragma unroll
  for (int f = 0; f < kFragments; ++f)
#pragma unroll
    for (int n = 0; n < kOwn / 2; ++n) s[f][n] = small[f][n] = 0;
#pragma unroll 2
  for (int step = 0; step < Steps; ++step) {
    uint32 a[kFragments][4], a_low[kFragments][4];
    load_split<Pitch>(q_at, step, a, a_low);
#pragma unroll
    for (int n = 0; n < kOwn / 16; ++n) {
      uint32 x[4], b[4], b_low[4];
      load_matrices<false>(x, k_at + n * 16 * Pitch + step * 32);
      split(x, b, b_low);
#pragma unroll
      for (int f = 0; f < kFragments; ++f)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float(&less)[4] = four(small[f][8 * n + 4 * h]);
          multiply_add(less, a_low[f], b[2 * h], b[2 * h + 1], 0.0f);
          multiply_add(less, a[f], b_low[2 * h], b_low[2 * h + 1], 0.0f);
          multiply_add(four(s[f][8 * n + 4 * h]), a[f], b[2 * h], b[2 * h + 1], 0.0f);
        }
    }
  }
  bool numbers = true;
#pragma unroll
  for (int f = 0; f < kFragments; ++f)
#pragma unroll
    for (int n = 0; n < kOwn / 2; ++n) {
      s[f][n] += small[f][n];
      small[f][n] = 0;
      numbers = numbers && is_number(s[f][n]);
    }
  if (__all_sync(0xffffffffu, numbers)) return;
#pragma unroll 1
  for (int d = 0; d < 32 * Steps; d += 4) {  // bytes
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
      for (int n = 0; n < kOwn / 2; ++n) {
        const int row = 16 * f + 8 * (n / 2 % 2) + g, other = 8 * (n / 4) + column + n % 2;
        small[f][n] = __fmaf_rn(__uint_as_float(load_shared(q + row * Pitch + d)),
                                __uint_as_float(load_shared(k + other * Pitch + d)), small[f][n]);
      }
  }
#pragma unroll
  for (int f = 0; f < kFragments; ++f)
#pragma unroll
    for (int n = 0; n < kOwn / 2; ++n)
      if (!is_number(s[f][n])) s[f][n] = small[f][n];
}

// tiles of 8 result columns whose sums are made together
constexpr int kTogether = kWidthTiles > 16 ? 2 : 4;
typedef float Group[kFragments][kTogether][4];

__device__ __forceinline__ void clear(Group& x) {
#pragma unroll
  for (int f = 0; f < kFragments; ++f)
#pragma unroll
    for (int n = 0; n < kTogether; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) x[f][n][e] = 0;
}

/// Weights times v for result columns 8 n0 and on; v: the first row. The order of columns of the pairs within
/// 8 is free: those of a lane's scores, 2 q and 2 q + 1, are its columns q and q + 4 of the first operand.
template <int Pitch>
__device__ __forceinline__ void add_group(Group& big, Group& small, const Scores& s, int n0, uint32 v) {
  const uint32 v_at = v + threadIdx.x % 4 * 2 * Pitch + threadIdx.x % 32 / 4 * 4;
#pragma unroll
  for (int step = 0; step < kOwn / 8; ++step) {
    uint32 a[kFragments][4], a_low[kFragments][4];
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
      const float* const w = &s[f][4 * step];
      const uint32 x[4] = {__float_as_uint(w[0]), __float_as_uint(w[2]), __float_as_uint(w[1]),
                           __float_as_uint(w[3])};
      split(x, a[f], a_low[f]);
    }
#pragma unroll
    for (int n = 0; n < kTogether; ++n) {
      if (n0 + n >= kWidthTiles) continue;
      const uint32 at = v_at + 8 * step * Pitch + 32 * (n0 + n);
      const uint32 x[2] = {load_shared(at), load_shared(at + Pitch)};
      uint32 b[2], b_low[2];
      split(x, b, b_low);
#pragma unroll
      for (int f = 0; f < kFragments; ++f) {
        multiply_add(small[f][n], a_low[f], b[0], b[1], 0.0f);
        multiply_add(small[f][n], a[f], b_low[0], b_low[1], 0.0f);
        multiply_add(big[f][n], a[f], b[0], b[1], 0.0f);
      }
    }
  }
}

/// The same by the threads, for sums that are not finite.
template <int Pitch>
__device__ __forceinline__ void mend_group(Group& sum, const Scores& s, int n0, uint32 v) {
  Group exact;
  clear(exact);
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int j = 0; j < kOwn; ++j)
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float w[kOwn / 8];  // of columns 8 n + j % 8, in one lane of four
#pragma unroll
        for (int n = 0; n < kOwn / 8; ++n) w[n] = j % 2 == 1 ? s[f][4 * n + 2 * h + 1] : s[f][4 * n + 2 * h];
#pragma unroll
        for (int half = kOwn / 16; half >= 1; half /= 2)
#pragma unroll
          for (int n = 0; n < half; ++n) w[n] = j / 8 & half ? w[n + half] : w[n];
        w[0] = __shfl_sync(0xffffffffu, w[0], lane / 4 * 4 + j % 8 / 2);
#pragma unroll
        for (int n = 0; n < kTogether; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            if (n0 + n >= kWidthTiles) continue;
            const uint32 at = v + j * Pitch + 4 * (8 * (n0 + n) + lane % 4 * 2 + e);
            exact[f][n][2 * h + e] =
                __fmaf_rn(w[0], __uint_as_float(load_shared(at)), exact[f][n][2 * h + e]);
          }
      }
#pragma unroll
  for (int f = 0; f < kFragments; ++f)
#pragma unroll
    for (int n = 0; n < kTogether; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (!is_number(sum[f][n][e])) sum[f][n][e] = exact[f][n][e];
}

template <int Pitch>
__device__ __forceinline__ void float_products(AttentionRows& rows, const Scores& s, uint32 v) {
#pragma unroll
  for (int n0 = 0; n0 < kWidthTiles; n0 += kTogether) {
    Group big, small;
    clear(big);
    clear(small);
    add_group<Pitch>(big, small, s, n0, v);
    bool numbers = true;
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
      for (int n = 0; n < kTogether; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          big[f][n][e] += small[f][n][e];
          numbers = numbers && is_number(big[f][n][e]);
        }
    if (!__all_sync(0xffffffffu, numbers)) mend_group<Pitch>(big, s, n0, v);
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
      for (int n = 0; n < kTogether; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (n0 + n < kWidthTiles) rows.at(f, n0 + n, e) += big[f][n][e];
  }
}
