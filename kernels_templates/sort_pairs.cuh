// Two keys of up to 16 bits in the halves of a register: compared at once, as signed numbers, made of
// elements and made elements again. After sort.cuh.
#pragma once

constexpr uint32 kOnes = 0x10001, kLastPair = 0x7fff * kOnes;  // no key is greater

/// The lesser of either half, and the greater.
__device__ __forceinline__ uint32 lesser_halves(uint32 a, uint32 b) {
#if __CUDA_ARCH__ >= 900
  uint32 least;
  asm("min.s16x2 %0, %1, %2;" : "=r"(least) : "r"(a), "r"(b));
  return least;
#else
  const uint32 low = short(a) < short(b) ? a : b, high = int(a) >> 16 < int(b) >> 16 ? a : b;
  return (low & 0xffff) | (high & 0xffff0000);
#endif
}
__device__ __forceinline__ uint32 greater_halves(uint32 a, uint32 b) {
#if __CUDA_ARCH__ >= 900
  uint32 greatest;
  asm("max.s16x2 %0, %1, %2;" : "=r"(greatest) : "r"(a), "r"(b));
  return greatest;
#else
  const uint32 low = short(a) < short(b) ? b : a, high = int(a) >> 16 < int(b) >> 16 ? b : a;
  return (low & 0xffff) | (high & 0xffff0000);
#endif
}

template <class T>
__device__ __forceinline__ void sort_pair(T& a, T& b) {
  if constexpr (kPaired) {
    const T least = lesser_halves(a, b);
    b = greater_halves(a, b);
    a = least;
  } else {
    const bool swap = precedes(b, a);
    const T least = swap ? b : a, greatest = swap ? a : b;
    a = least;
    b = greatest;
  }
}
template <class T>
__device__ __forceinline__ T lesser(const T& a, const T& b, bool least) {
  if constexpr (kPaired)
    return least ? lesser_halves(a, b) : greater_halves(a, b);
  else
    return precedes(b, a) == least ? b : a;
}

/// Ones in the halves that are negative.
__device__ __forceinline__ uint32 negative_halves(uint32 x) {
#ifdef KILN_FAKE_DEVICE
  return (x >> 15 & kOnes) * 0xffffu;
#else
  uint32 y;
  asm("prmt.b32 %0, %1, 0, 0xbb99;" : "=r"(y) : "r"(x));
  return y;
#endif
}

/// What stands for two elements among their equals: of floats NaN are 0x7fff, and zeros perhaps +0. A
/// device's sums have such a NaN.
template <class T>
struct PairEquals {
  static __device__ __forceinline__ uint32 first(uint32 x) {
    typedef element<T> E;
    if constexpr (E::infinity == 0) return x;
    const auto half = [](uint32 h) {
      if (is_nan<T>(typename E::bits(h))) return 0x7fffu;
      return Order::merge_zeros && h == 0x8000u ? 0u : h;
    };
    return half(x & 0xffff) | half(x >> 16) << 16;
  }
};
#ifndef KILN_FAKE_DEVICE
template <>
struct PairEquals<f16> {
  static __device__ __forceinline__ uint32 first(uint32 x) {
    uint32 y;
    const uint32 zero = Order::merge_zeros ? 0 : 0x80008000;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(y) : "r"(x), "r"(zero));
    return y;
  }
};
#if __CUDA_ARCH__ >= 900
template <>
struct PairEquals<bf16> {
  static __device__ __forceinline__ uint32 first(uint32 x) {
    uint32 y;
    const uint32 zero = Order::merge_zeros ? 0 : 0x80008000, one = 0x3f803f80;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(x), "r"(one), "r"(zero));
    return y;
  }
};
#endif
#endif

/// Two elements of 16 bits, one of each set, as ordered keys; `lost` gets bits where keys stand for other
/// elements.
__device__ __forceinline__ uint32 paired_keys(uint32 x, bool descending, uint32& lost) {
  typedef ::element<Element> E;
  const uint32 y = PairEquals<Element>::first(x);
  const uint32 key =
      E::infinity != 0 ? y ^ (negative_halves(y) & 0x7fff * kOnes) : y ^ (uint32(E::sign) ^ 0x8000) * kOnes;
  if (Order::mended) lost |= x ^ y;
  return descending ? ~key : key;
}
/// And back.
__device__ __forceinline__ uint32 paired_elements(uint32 key, bool descending) {
  typedef ::element<Element> E;
  if (descending) key = ~key;
  if constexpr (E::infinity == 0) return key ^ (uint32(E::sign) ^ 0x8000) * kOnes;
  return lesser_halves(key ^ (negative_halves(key) & 0x7fff * kOnes), uint32(E::nan) * kOnes);
}

/// The lower halves of two words side by side, and the upper.
__device__ __forceinline__ uint32 low_halves(uint32 a, uint32 b) { return (a & 0xffff) | b << 16; }
__device__ __forceinline__ uint32 high_halves(uint32 a, uint32 b) { return a >> 16 | (b & 0xffff0000); }
