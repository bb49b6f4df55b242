// Primitives of src/kernel/prims.def that take more than one instruction.
#pragma once

/// 1 / a by the hardware's approximation; pre: its result is normal, 0, infinite or NaN.
__device__ __forceinline__ float reciprocal_fast(float a) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(a));
  return y;
}

/// The square root by the hardware's approximation.
__device__ __forceinline__ float sqrt_fast(float a) {
  float y;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(a));
  return y;
}
/// 4^a by the hardware's approximation of 2^a, whose square may be subnormal where it may not.
__device__ __forceinline__ float exp4_fast(float a) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(a));
  return y * y;
}

/// 2^a by the hardware's approximation; 0 where that is subnormal.
__device__ __forceinline__ float exp2_flushed(float a) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(a));
  return y;
}

/// ln a by the hardware's approximation of log2 a: below 2 within 2^-22, else within that of its size; pre: a
/// is 0, from 1 on, or NaN.
__device__ __forceinline__ float log_fast(float a) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(a));
  return y * 0.693147181f;
}

/// a / b from the hardware's reciprocal and one correction; pre: a finite, 1/2 <= |b| <= 2^120.
__device__ __forceinline__ float div_bounded(float a, float b) {
  const float r = reciprocal_fast(b), q = a * r;
  return __fmaf_rn(__fmaf_rn(-q, b, a), r, q);
}

/// a / b: by powers of two away from the ends of the range, then the quotient by the reciprocal, corrected by
/// its remainder until it is the nearest (Markstein, "IA-64 and Elementary Functions", 2000, theorem 8.4), as
/// the compiler's own division does, without its branch for what is out of range. Quotients that are 0,
/// infinite or NaN are right at once.
__device__ __forceinline__ float divide(float a, float b) {
  const float s = fminf(fabsf(a), fabsf(b)) < 7.888609e-31f ? 1.8446744e19f
                  : fabsf(b) > 1.2676506e30f                ? 5.421011e-20f
                                                            : 1.0f;
  const float d = b * s, x = a * s, estimate = reciprocal_fast(d);
  const float r = __fmaf_rn(__fmaf_rn(-d, estimate, 1.0f), estimate, estimate);
  float q = x * r;
  q = __fmaf_rn(__fmaf_rn(-q, d, x), r, q);
  q = __fmaf_rn(__fmaf_rn(-q, d, x), r, q);
  return fabsf(q) > 0.0f ? q : x * estimate;
}

/// The square root, likewise. What is 0, infinite, NaN or negative has an exact approximation.
__device__ __forceinline__ float square_root(float a) {
  const bool tiny = a < 7.888609e-31f;  // 2^-100
  const float x = tiny ? a * 1.8446744e19f : a;
  float r;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  const float g = x * r, y = __fmaf_rn(__fmaf_rn(-g, g, x), r * 0.5f, g);
  return (unsigned int)(__float_as_int(a) - 1) < 0x7f7fffffu ? tiny ? y * 2.3283064e-10f : y : sqrt_fast(a);
}

/// What many divisions by one number take.
struct Divisor {
  float scale, d, reciprocal;
};
__device__ __forceinline__ Divisor divisor(float d) {
  Divisor out;
  const float magnitude = fabsf(d);
  // 2^±64
  out.scale = magnitude < 7.888609e-31f ? 1.8446744e19f : magnitude > 1.2676506e30f ? 5.421011e-20f : 1.0f;
  out.d = d * out.scale;
  out.reciprocal = divide(1.0f, out.d);
  return out;
}
__device__ __forceinline__ float divide(float x, const Divisor& by) {
  const float y = x * by.scale, q = y * by.reciprocal;
  const float better = __fmaf_rn(__fmaf_rn(-q, by.d, y), by.reciprocal, q);
  return better == better ? better : q;
}

/// 2^n; pre: n integral in [-126, 127]. The sum's lowest bits are the biased exponent: conversions are
/// slower.
__device__ __forceinline__ float power_of_two(float n) {
  return __int_as_float(__float_as_int(n + 12583039.0f) << 23);
}

/// a 2^b, by two halves of it; pre: b integral in [-252, 254], or a NaN. The first product is exact unless
/// the second vanishes.
__device__ __forceinline__ float scale(float a, float b) {
  const float half = __fmaf_rn(b, 0.5f, 12582912.0f) - 12582912.0f;
  return (a * power_of_two(half)) * power_of_two(b - half);
}

/// n of a = m 2^n, 3/4 <= m < 3/2; -Inf for 0, Inf for Inf, NaN for negative operands and NaN.
__device__ __forceinline__ float exponent(float a) {
  const bool tiny = a < __int_as_float(0x00800000);
  const float x = tiny ? a * 8388608.0f : a;
  const int bits = __float_as_int(x);
  const float n =
      __int_as_float(0x4b400000 + ((bits - 0x3f400000) >> 23)) - (tiny ? 12582935.0f : 12582912.0f);
  float special;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(special) : "f"(x));
  return (unsigned int)(__float_as_int(a) - 1) < 0x7f7fffffu ? n : special;
}

/// That m; 1 for 0 and Inf, whose bits give it.
__device__ __forceinline__ float mantissa(float a) {
  const bool tiny = a < __int_as_float(0x00800000);
  const int bits = __float_as_int(tiny ? a * 8388608.0f : a);
  return __int_as_float(bits - ((bits - 0x3f400000) & 0xff800000));
}
