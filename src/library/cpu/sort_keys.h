// Keys: unsigned numbers that order like the elements that are sorted. NaN is the greatest.
#pragma once

#include <kiln/dtype.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace kiln::cpu {

template <std::size_t Bytes>
using Unsigned =
    std::conditional_t<Bytes == 1, std::uint8_t,
                       std::conditional_t<Bytes == 2, std::uint16_t,
                                          std::conditional_t<Bytes == 4, std::uint32_t, std::uint64_t>>>;

template <class T>
using Key = Unsigned<sizeof(T)>;

template <class T>
constexpr Key<T> kSign = static_cast<Key<T>>(Key<T>{1} << (8 * sizeof(T) - 1));

/// Bits of infinity; those of NaN without their sign are greater.
template <class T>
constexpr Key<T> kInfinity = std::bit_cast<Key<T>>(std::numeric_limits<T>::infinity());
template <>
inline constexpr Key<float16> kInfinity<float16> = 0x7c00;
template <>
inline constexpr Key<bfloat16> kInfinity<bfloat16> = 0x7f80;

/// The bits of an element. A copy of a half as a whole would keep compilers from making registers of a loop.
template <class T>
Key<T> bits_of(const T& x) {
  if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>)
    return x.bits;
  else
    return std::bit_cast<Key<T>>(x);
}

/// An unsigned number of the same order. Where equal elements must have equal keys, -0 takes that of +0.
template <class T>
Key<T> key_of(const T& x, bool merge_zeros) {
  using K = Key<T>;
  const K bits = bits_of(x);
  if constexpr (std::is_integral_v<T>) {
    if constexpr (std::is_signed_v<T>)
      return static_cast<K>(bits ^ kSign<T>);
    else
      return bits;
  } else {
    // Without a branch, since signs are in no order, and so that compilers make registers of it: all bits of
    // a negative number turn, the sign of another.
    const K zero = static_cast<K>(merge_zeros ? K{0} : kSign<T>);
    const K merged = bits == kSign<T> ? zero : bits;
    const K negative = static_cast<K>(K{0} - static_cast<K>(merged >> (8 * sizeof(T) - 1)));
    const K key = static_cast<K>(merged ^ (negative | kSign<T>));
    return static_cast<K>(bits & ~kSign<T>) > kInfinity<T> ? std::numeric_limits<K>::max() : key;
  }
}

template <class T>
T quiet_nan() {
  if constexpr (std::is_same_v<T, float16>)
    return std::bit_cast<T>(std::uint16_t{0x7e00});
  else if constexpr (std::is_same_v<T, bfloat16>)
    return std::bit_cast<T>(std::uint16_t{0x7fc0});
  else
    return std::numeric_limits<T>::quiet_NaN();
}

template <class T>
T value_of(Key<T> key) {
  using K = Key<T>;
  if constexpr (std::is_integral_v<T>) {
    if constexpr (std::is_signed_v<T>)
      return static_cast<T>(key ^ kSign<T>);
    else
      return static_cast<T>(key);
  } else {
    const K negative = static_cast<K>(static_cast<K>(key >> (8 * sizeof(T) - 1)) - K{1});
    const K bits = static_cast<K>(key ^ (negative | kSign<T>));
    return std::bit_cast<T>(key == std::numeric_limits<K>::max() ? std::bit_cast<K>(quiet_nan<T>()) : bits);
  }
}

/// Whether some of these have keys that do not tell them apart: zeros and NaN.
template <class T>
bool any_equal(const T* values, std::int64_t n) {
  if constexpr (!std::is_integral_v<T>) {
    constexpr Key<T> kMagnitude = static_cast<Key<T>>(~kSign<T>);
    Key<T> most = 0;
    for (std::int64_t i = 0; i < n; ++i) {  // zero - 1 is the greatest number
      const auto x = static_cast<Key<T>>((bits_of(values[i]) & kMagnitude) - 1);
      most = x > most ? x : most;
    }
    return most >= kInfinity<T>;
  }
  return false;
}

/// Values of a row in the order of keys that do not tell zeros apart, nor NaN: of those the first in the row
/// come first.
template <class T>
void keep_order_of_equals(const T* from, std::int64_t stride, T* to, std::int64_t to_stride,
                          std::int64_t kept) {
  if constexpr (!std::is_integral_v<T>) {
    constexpr Key<T> kEqual[2] = {kSign<T>, std::numeric_limits<Key<T>>::max()};
    std::int64_t next[2] = {0, 0};
    for (std::int64_t i = 0; i < kept; ++i)
      for (int which = 0; which < 2; ++which) {
        if (key_of(to[i * to_stride], true) != kEqual[which]) continue;
        while (key_of(from[next[which] * stride], true) != kEqual[which]) ++next[which];
        to[i * to_stride] = from[next[which]++ * stride];
        break;
      }
  }
}

}  // namespace kiln::cpu
