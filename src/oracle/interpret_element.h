// Elements of the reference interpreter's values, and the wide totals that sums and products of them are kept
// in.
#pragma once

#include "oracle/interpret_value.h"
#include "oracle/reference.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace kiln::ir::oracle {

template <class T>
T load(const Value& v, std::int64_t offset) {
  const std::byte* const at = v.data + offset * static_cast<std::int64_t>(sizeof(T));
  // of a GPU's memory: that is not looked at when it is lent
  if constexpr (std::is_same_v<T, bool>) return *at != std::byte{0};
  T out;
  std::memcpy(&out, at, sizeof(T));
  return out;
}

template <class T>
void store(const Value& v, std::int64_t index, T value) {
  std::memcpy(v.writable() + index * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

/// Long double for floats: an oracle's sum must be better than the tree it judges. Integers wrap in uint64_t.
template <class S>
using Sum = std::conditional_t<std::is_integral_v<S>, std::uint64_t, long double>;

template <class S>
Sum<S> widen(S s) {
  if constexpr (std::is_integral_v<S>)
    return static_cast<std::uint64_t>(s);
  else
    return static_cast<long double>(static_cast<ref::Compute<S>>(s));
}
template <class S>
S narrow(Sum<S> sum) {
  if constexpr (std::is_integral_v<S>)
    return static_cast<S>(sum);
  else
    return ref::cast<S>(static_cast<double>(sum));
}

}  // namespace kiln::ir::oracle
