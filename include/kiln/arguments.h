// Argument types that convert only from types of the same meaning. A bool is not an axis, a float is not an
// extent, and a number is not a flag: sum(x, true), zeros({2.5}) and sum(x, 0, 1) do not compile.
#pragma once

#include <version>

#if !defined(__cpp_lib_source_location) || !defined(__cpp_lib_concepts) || !defined(__cpp_lib_ranges) || \
    (defined(__clang__) && !defined(__apple_build_version__) && __clang_major__ < 16) ||                 \
    (defined(__apple_build_version__) && __clang_major__ < 15)
#error \
    "Kiln's headers need C++20 with <source_location>, <concepts> and <ranges>: GCC 11+, Clang 16+ or Apple Clang 15+, and -std=c++20 or later"
#endif

#include <concepts>
#include <cstdint>
#include <limits>
#include <ranges>
#include <source_location>
#include <type_traits>
#include <utility>

namespace kiln {

using SourceLocation = std::source_location;

/// Any integer type but bool, and unscoped enumerations.
template <class T>
concept WholeNumber = (std::integral<T> && !std::same_as<std::remove_cv_t<T>, bool>) ||
                      (std::is_enum_v<T> && std::is_convertible_v<T, std::int64_t>);

namespace detail {
/// A number outside of int64 becomes the nearest int64: wrapping would give a number of another meaning.
template <WholeNumber T>
constexpr std::int64_t saturated(T value) {
  if constexpr (std::is_enum_v<T>) {
    return saturated(+value);
  } else {
    if (std::in_range<std::int64_t>(+value)) return static_cast<std::int64_t>(value);
    return value > 0 ? std::numeric_limits<std::int64_t>::max() : std::numeric_limits<std::int64_t>::min();
  }
}
}  // namespace detail

/// An extent, a count or a position; converts from any integer, unsigned ones in braces too ({v.size(), 4}).
class Whole {
 public:
  template <WholeNumber T>
  constexpr Whole(T value) : value_(detail::saturated(value)) {}
  constexpr operator std::int64_t() const { return value_; }

 private:
  std::int64_t value_;
};

/// The number of an axis; a negative one counts from the back.
class Axis {
 public:
  template <WholeNumber T>
  constexpr Axis(T axis) : value_(detail::saturated(axis)) {}
  constexpr std::int64_t value() const { return value_; }

 private:
  std::int64_t value_;
};

/// A bool argument; converts from true and false only.
class Flag {
 public:
  template <std::same_as<bool> T>
  constexpr Flag(T value) : value_(value) {}
  constexpr operator bool() const { return value_; }

 private:
  bool value_;
};

/// A vector, span, array or view of integers.
template <class R>
concept WholeNumbers = std::ranges::input_range<const R> && WholeNumber<std::ranges::range_value_t<const R>>;

}  // namespace kiln
