// Elements of arrays at any strides, and numbers of the same order. For kernels that are not made from the
// loop IR.
#pragma once

/// Outermost first; strides in elements.
struct Axes {
  int rank;
  int64 dims[16], strides[16];
};

/// Offset of the i-th element in row-major order.
__device__ __forceinline__ int64 offset_of(const Axes& axes, int64 i) {
  int64 offset = 0;
#pragma unroll 1
  for (int a = axes.rank - 1; a > 0; --a) {
    const int64 outer = index_div(i, axes.dims[a]);
    offset += (i - outer * axes.dims[a]) * axes.strides[a];
    i = outer;
  }
  return axes.rank > 0 ? offset + i * axes.strides[0] : 0;
}

/// What an element is as bits. sign: 0 for unsigned integers; infinity: 0 for integers; nan: the one that
/// results have.
template <class T>
struct element;
template <>
struct element<uint8> {
  typedef uint8 bits;
  static const bits sign = 0, infinity = 0, nan = 0;
};
template <>
struct element<uint16> {
  typedef uint16 bits;
  static const bits sign = 0, infinity = 0, nan = 0;
};
template <>
struct element<uint32> {
  typedef uint32 bits;
  static const bits sign = 0, infinity = 0, nan = 0;
};
template <>
struct element<uint64> {
  typedef uint64 bits;
  static const bits sign = 0, infinity = 0, nan = 0;
};
template <>
struct element<int8> {
  typedef uint8 bits;
  static const bits sign = 0x80, infinity = 0, nan = 0;
};
template <>
struct element<int16> {
  typedef uint16 bits;
  static const bits sign = 0x8000, infinity = 0, nan = 0;
};
template <>
struct element<int32> {
  typedef uint32 bits;
  static const bits sign = 0x80000000u, infinity = 0, nan = 0;
};
template <>
struct element<int64> {
  typedef uint64 bits;
  static const bits sign = 1ull << 63, infinity = 0, nan = 0;
};
template <>
struct element<f16> {
  typedef uint16 bits;
  static const bits sign = 0x8000, infinity = 0x7c00, nan = 0x7e00;
};
template <>
struct element<bf16> {
  typedef uint16 bits;
  static const bits sign = 0x8000, infinity = 0x7f80, nan = 0x7fc0;
};
template <>
struct element<float> {
  typedef uint32 bits;
  static const bits sign = 0x80000000u, infinity = 0x7f800000u, nan = 0x7fc00000u;
};
template <>
struct element<double> {
  typedef uint64 bits;
  static const bits sign = 1ull << 63, infinity = 0x7ffull << 52, nan = 0x7ff8ull << 48;
};

template <class To, class From>
__device__ __forceinline__ To same_bits(From x) {
  static_assert(sizeof(To) == sizeof(From), "");
  union {
    From from;
    To to;
  } u = {x};
  return u.to;
}

template <class T>
__device__ __forceinline__ bool is_nan(typename element<T>::bits x) {
  typedef element<T> E;
  return E::infinity != 0 && typename E::bits(x & ~E::sign) > E::infinity;
}

/// An unsigned number of the same order, NaN the greatest and -0 below +0, unless zeros are to be equal.
template <class T>
__device__ __forceinline__ typename element<T>::bits key_of(typename element<T>::bits x, bool merge_zeros) {
  typedef element<T> E;
  typedef typename E::bits K;
  if (E::infinity == 0) return K(x ^ E::sign);
  if (is_nan<T>(x)) return K(~K(0));
  if (merge_zeros && x == E::sign) x = 0;
  return K(x ^ (x & E::sign ? K(~K(0)) : K(E::sign)));
}

/// The element that has this key.
template <class T>
__device__ __forceinline__ typename element<T>::bits bits_of_key(typename element<T>::bits key) {
  typedef element<T> E;
  typedef typename E::bits K;
  if (E::infinity == 0) return K(key ^ E::sign);
  if (key == K(~K(0))) return E::nan;
  return key & E::sign ? K(key ^ E::sign) : K(~key);
}
