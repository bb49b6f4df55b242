// Storage of half types as bits, and conversions with the meaning of src/kernel/prims.def: float to integer
// truncates, saturates, and gives 0 for NaN; everything else rounds to nearest even, once.
#pragma once

typedef signed char int8;
typedef unsigned char uint8;
typedef short int16;
typedef unsigned short uint16;
typedef int int32;
typedef unsigned int uint32;
typedef long long int64;
typedef unsigned long long uint64;

struct f16 {
  uint16 bits;
};
struct bf16 {
  uint16 bits;
};

__device__ __forceinline__ float to_float(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
__device__ __forceinline__ float to_float(bf16 x) { return __uint_as_float(uint32(x.bits) << 16); }

__device__ __forceinline__ f16 to_f16(float x) {
  f16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
__device__ __forceinline__ f16 to_f16(double x) {
  f16 y;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(y.bits) : "d"(x));
  return y;
}

__device__ __forceinline__ bf16 to_bf16(float x) {
  bf16 y;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
  const uint32 b = __float_as_uint(x);
  y.bits = x != x ? uint16(0x7fff) : uint16((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
#endif
  return y;
}
/// Through a float rounded to odd, so that the second rounding is right.
__device__ __forceinline__ bf16 to_bf16(double x) {
  const float down = __double2float_rz(x);
  const bool inexact = double(down) != x && x == x && down - down == 0.0f;
  return to_bf16(inexact ? __uint_as_float(__float_as_uint(down) | 1u) : down);
}

/// to_float(to_f16(x)) and to_float(to_bf16(x)): conversions of pairs are the fast ones. The upper half: a
/// bf16 is that of a float, and two lower f16 would be converted together, for which the assembler moves one
/// past the wait for the products that make it.
__device__ __forceinline__ float round_f16(float x) {
#if __CUDA_ARCH__ >= 800
  uint32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(x), "f"(0.0f));
  return to_float(f16{uint16(pair >> 16)});
#else
  return to_float(to_f16(x));
#endif
}
__device__ __forceinline__ float round_bf16(float x) {
#if __CUDA_ARCH__ >= 800
  uint32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(x), "f"(0.0f));
  return __uint_as_float(pair);
#else
  return to_float(to_bf16(x));
#endif
}

template <class To>
struct limits;
template <>
struct limits<int8> {
  static const int digits = 7;
  static const int64 lo = -128, hi = 127;
};
template <>
struct limits<uint8> {
  static const int digits = 8;
  static const int64 lo = 0, hi = 255;
};
template <>
struct limits<int16> {
  static const int digits = 15;
  static const int64 lo = -32768, hi = 32767;
};
template <>
struct limits<uint16> {
  static const int digits = 16;
  static const int64 lo = 0, hi = 65535;
};
template <>
struct limits<int32> {
  static const int digits = 31;
  static const int64 lo = -2147483647ll - 1, hi = 2147483647ll;
};
template <>
struct limits<uint32> {
  static const int digits = 32;
  static const int64 lo = 0, hi = 4294967295ll;
};
template <>
struct limits<int64> {
  static const int digits = 63;
  static const int64 lo = -9223372036854775807ll - 1, hi = 9223372036854775807ll;
};
template <>
struct limits<uint64> {
  static const int digits = 64;
  static const uint64 lo = 0, hi = ~0ull;
};

/// Float to integer.
template <class To, class From>
__device__ __forceinline__ To to_int(From x) {
  const From bound = From(2.0) * From(1ull << (limits<To>::digits - 1));
  if (!(x == x)) return To(0);
  if (x >= bound) return To(limits<To>::hi);
  if (x <= From(limits<To>::lo)) return To(limits<To>::lo);
  return To(x);
}
// The device's conversion saturates, and gives 0 for a NaN.
template <>
__device__ __forceinline__ int8 to_int<int8, float>(float x) {
  int n;
  asm("cvt.rzi.sat.s8.f32 %0, %1;" : "=r"(n) : "f"(x));
  return int8(n);
}
template <>
__device__ __forceinline__ int16 to_int<int16, float>(float x) {
  const int n = __float2int_rz(x);
  return int16(n < -32768 ? -32768 : n > 32767 ? 32767 : n);
}
template <>
__device__ __forceinline__ uint8 to_int<uint8, float>(float x) {
  int n;
  asm("cvt.rzi.sat.u8.f32 %0, %1;" : "=r"(n) : "f"(x));
  return uint8(n);
}
template <>
__device__ __forceinline__ uint16 to_int<uint16, float>(float x) {
  const unsigned int n = __float2uint_rz(x);
  return uint16(n > 65535u ? 65535u : n);
}
template <>
__device__ __forceinline__ int32 to_int<int32, float>(float x) {
  return __float2int_rz(x);
}
template <>
__device__ __forceinline__ uint32 to_int<uint32, float>(float x) {
  return __float2uint_rz(x);
}

/// The nearest integer; of two neighbours one instruction on some devices.
template <class To>
__device__ __forceinline__ To round_to(float x);
template <>
__device__ __forceinline__ int8 round_to<int8>(float x) {
  int n;
  asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(n) : "f"(x));
  return int8(n);
}
template <>
__device__ __forceinline__ uint8 round_to<uint8>(float x) {
  int n;
  asm("cvt.rni.sat.u8.f32 %0, %1;" : "=r"(n) : "f"(x));
  return uint8(n);
}

/// NaN if either is NaN; of zeros the second.
template <class T>
__device__ __forceinline__ T max_of(T a, T b) {
  return a > b || a != a ? a : b;
}
template <class T>
__device__ __forceinline__ T min_of(T a, T b) {
  return a < b || a != a ? a : b;
}

/// The same where either zero will do.
template <class T>
__device__ __forceinline__ T greatest(T a, T b) {
  return max_of(a, b);
}
template <class T>
__device__ __forceinline__ T least(T a, T b) {
  return min_of(a, b);
}
#if __CUDA_ARCH__ >= 800
__device__ __forceinline__ float greatest(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
__device__ __forceinline__ float least(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
#endif
