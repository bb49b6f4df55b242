// Integer arithmetic with the meaning of src/kernel/prims.def: wraps; x / 0 = x % 0 = 0; MIN / -1 = MIN, MIN
// % -1 = 0.
#pragma once

template <class T>
struct wide {
  typedef unsigned int type;
};
template <>
struct wide<long long> {
  typedef unsigned long long type;
};
template <>
struct wide<unsigned long long> {
  typedef unsigned long long type;
};

/// The low bits as a T. Said to the assembler for narrow signed types: from a wrapped result in a 16-bit
/// register it would extend the sign of the 32 bits it computes in.
template <class T>
__device__ __forceinline__ T narrowed(typename wide<T>::type a) {
  return T(a);
}
template <>
__device__ __forceinline__ short narrowed<short>(unsigned int a) {
  int y;
  asm("bfe.s32 %0, %1, 0, 16;" : "=r"(y) : "r"(a));
  return short(y);
}
template <>
__device__ __forceinline__ signed char narrowed<signed char>(unsigned int a) {
  int y;
  asm("bfe.s32 %0, %1, 0, 8;" : "=r"(y) : "r"(a));
  return (signed char)y;
}

template <class T>
__device__ __forceinline__ T wrap_neg(T a) {
  return narrowed<T>(0 - typename wide<T>::type(a));
}
template <class T>
__device__ __forceinline__ T wrap_abs(T a) {
  return a < T(0) ? wrap_neg(a) : a;
}
template <class T>
__device__ __forceinline__ T wrap_add(T a, T b) {
  return narrowed<T>(typename wide<T>::type(a) + typename wide<T>::type(b));
}
template <class T>
__device__ __forceinline__ T wrap_sub(T a, T b) {
  return narrowed<T>(typename wide<T>::type(a) - typename wide<T>::type(b));
}
template <class T>
__device__ __forceinline__ T wrap_mul(T a, T b) {
  return narrowed<T>(typename wide<T>::type(a) * typename wide<T>::type(b));
}
template <class T>
__device__ __forceinline__ T wrap_shl(T a, T b) {
  return narrowed<T>(typename wide<T>::type(a) << int(b));
}
// Without branches: one on a divisor that all elements share is copied into each of them, and with it all
// selections on what they share, two to the power of their number.
template <class T>
__device__ __forceinline__ T int_div(T a, T b) {
  const bool none = b == T(0), negates = (T(-1) < T(0)) & (b == T(-1));
  const T q = T(a / ((none | negates) ? T(1) : b));
  return none ? T(0) : negates ? wrap_neg(a) : q;
}
template <class T>
__device__ __forceinline__ T int_rem(T a, T b) {
  const bool none = (b == T(0)) | ((T(-1) < T(0)) & (b == T(-1)));
  const T r = T(a % (none ? T(1) : b));
  return none ? T(0) : r;
}

/// floor(x / d) for x >= 0, d > 0.
__device__ __forceinline__ int index_div(int x, int d) { return int((unsigned int)x / (unsigned int)d); }
/// The same by a product, with inverse = min(floor(2^32 / d), 2^32 - 1): at most one too few.
__device__ __forceinline__ int index_div(int x, int d, int inverse) {
  const unsigned int q = __umulhi((unsigned int)x, (unsigned int)inverse);
  return int((unsigned int)x - q * (unsigned int)d >= (unsigned int)d ? q + 1 : q);
}
__device__ __forceinline__ long long index_div(long long x, long long d) {
  return (unsigned long long)(x | d) >> 32 ? x / d : (long long)((unsigned int)x / (unsigned int)d);
}
