// Primitives of src/kernel/prims.def that take more than one instruction.
#pragma once

/// NaN if either is NaN; of two equal operands the second.
template <class T> __device__ __forceinline__ T max_of(T a, T b) { return a > b || a != a ? a : b; }
template <class T> __device__ __forceinline__ T min_of(T a, T b) { return a < b || a != a ? a : b; }

/// a / b from the hardware's reciprocal and one correction; pre: a finite, 1/2 <= |b| <= 2^120.
__device__ __forceinline__ float div_bounded(float a, float b) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
  const float q = a * r;
  return __fmaf_rn(__fmaf_rn(-q, b, a), r, q);
}

/// 2^a by the hardware's approximation.
__device__ __forceinline__ float exp2_fast(float a) {
  float y;
  asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(a));
  return y;
}

/// What division by one number takes: a power of two that brings it and its reciprocal among the normal numbers.
struct Divisor {
  float scale, d, reciprocal;
};
__device__ __forceinline__ Divisor divisor(float d) {
  const float magnitude = fabsf(d);
  Divisor out;
  out.scale = magnitude < 7.888609e-31f ? 1.8446744e19f : magnitude > 1.2676506e30f ? 5.421011e-20f : 1.0f;  // 2^±64
  out.d = d * out.scale;
  out.reciprocal = 1.0f / out.d;
  return out;
}
/// x / d: the quotient by the reciprocal, corrected by its remainder (Markstein, "IA-64 and Elementary Functions", 2000,
/// theorem 8.4). An infinite or NaN quotient is right already.
__device__ __forceinline__ float divide(float x, const Divisor& by) {
  const float y = x * by.scale, q = y * by.reciprocal;
  const float better = __fmaf_rn(__fmaf_rn(-q, by.d, y), by.reciprocal, q);
  return better == better ? better : q;
}

/// 2^n; pre: n integral in [-126, 127]. The sum's lowest bits are the biased exponent: conversions are slower.
__device__ __forceinline__ float power_of_two(float n) { return __int_as_float(__float_as_int(n + 12583039.0f) << 23); }

/// a 2^b; pre: b integral in [-252, 254], or NaN.
__device__ __forceinline__ float scale(float a, float b) {
  const float last = fminf(fmaxf(b, -126.0f), 127.0f);
  const float y = (a * power_of_two(b - last)) * power_of_two(last);
  return b == b ? y : b;
}

/// n of a = m 2^n, 3/4 <= m < 3/2; -Inf for 0, Inf for Inf, NaN for negative operands and NaN.
__device__ __forceinline__ float exponent(float a) {
  const bool tiny = a < __int_as_float(0x00800000);
  const int bits = __float_as_int(tiny ? a * 8388608.0f : a);
  const float n = __int_as_float(0x4b400000 + ((bits - 0x3f400000) >> 23)) - (tiny ? 12582935.0f : 12582912.0f);
  if (a > 0.0f) return a == __int_as_float(0x7f800000) ? a : n;
  return a == 0.0f ? __int_as_float(0xff800000) : __int_as_float(0x7fffffff);
}

/// That m; 1 for 0 and Inf.
__device__ __forceinline__ float mantissa(float a) {
  const bool tiny = a < __int_as_float(0x00800000);
  const int bits = __float_as_int(tiny ? a * 8388608.0f : a);
  if (a == 0.0f || a == __int_as_float(0x7f800000)) return 1.0f;
  return __int_as_float(bits - ((bits - 0x3f400000) & 0xff800000));
}
