// Integer arithmetic with the meaning of src/kernel/prims.def: wraps; x / 0 = x % 0 = 0; MIN / -1 = MIN, MIN % -1 = 0.
#pragma once

template <class T> struct wide { typedef unsigned int type; };
template <> struct wide<long long> { typedef unsigned long long type; };
template <> struct wide<unsigned long long> { typedef unsigned long long type; };

template <class T> __device__ __forceinline__ T wrap_neg(T a) { return T(0 - typename wide<T>::type(a)); }
template <class T> __device__ __forceinline__ T wrap_abs(T a) { return a < T(0) ? wrap_neg(a) : a; }
template <class T> __device__ __forceinline__ T wrap_add(T a, T b) {
  return T(typename wide<T>::type(a) + typename wide<T>::type(b));
}
template <class T> __device__ __forceinline__ T wrap_sub(T a, T b) {
  return T(typename wide<T>::type(a) - typename wide<T>::type(b));
}
template <class T> __device__ __forceinline__ T wrap_mul(T a, T b) {
  return T(typename wide<T>::type(a) * typename wide<T>::type(b));
}
template <class T> __device__ __forceinline__ T wrap_shl(T a, T b) { return T(typename wide<T>::type(a) << int(b)); }
template <class T> __device__ __forceinline__ T int_div(T a, T b) {
  if (b == T(0)) return T(0);
  if (T(-1) < T(0) && b == T(-1)) return wrap_neg(a);
  return T(a / b);
}
template <class T> __device__ __forceinline__ T int_rem(T a, T b) {
  if (b == T(0) || (T(-1) < T(0) && b == T(-1))) return T(0);
  return T(a % b);
}

/// floor(x / d) for x >= 0, d > 0.
__device__ __forceinline__ int index_div(int x, int d) { return int((unsigned int)x / (unsigned int)d); }
__device__ __forceinline__ long long index_div(long long x, long long d) {
  return (unsigned long long)(x | d) >> 32 ? x / d : (long long)((unsigned int)x / (unsigned int)d);
}
