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

template <class T>
bool is_nan(T x) {
  if constexpr (std::is_integral_v<T>)
    return false;
  else
    return x != x;
}
template <>
inline bool is_nan(float16 x) {
  return (x.bits & 0x7fff) > 0x7c00;
}
template <>
inline bool is_nan(bfloat16 x) {
  return (x.bits & 0x7fff) > 0x7f80;
}

/// An unsigned number of the same order. Where equal elements must have equal keys, -0 takes that of +0.
template <class T>
Key<T> key_of(T x, bool merge_zeros) {
  using K = Key<T>;
  if constexpr (std::is_integral_v<T>) {
    const K bits = static_cast<K>(x);
    if constexpr (std::is_signed_v<T>)
      return static_cast<K>(bits ^ kSign<T>);
    else
      return bits;
  } else {
    K bits = std::bit_cast<K>(x);
    if (merge_zeros && bits == kSign<T>) bits = 0;
    // Without a branch, since signs are in no order: all bits of a negative number turn, the sign of another.
    const K negative = static_cast<K>(K{0} - static_cast<K>(bits >> (8 * sizeof(T) - 1)));
    return is_nan(x) ? std::numeric_limits<K>::max() : static_cast<K>(bits ^ (negative | kSign<T>));
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
    if (key == std::numeric_limits<K>::max()) return quiet_nan<T>();
    const K negative = static_cast<K>(static_cast<K>(key >> (8 * sizeof(T) - 1)) - K{1});
    return std::bit_cast<T>(static_cast<K>(key ^ (negative | kSign<T>)));
  }
}

}  // namespace kiln::cpu
