// Element types: the DType enumeration, its property table, and the storage types of 16 and 8 bits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string_view>
#include <type_traits>

namespace kiln {

namespace detail {
constexpr float bits_to_float(std::uint32_t bits) { return std::bit_cast<float>(bits); }
float half_to_float(std::uint16_t bits);
std::uint16_t float_to_half(float value);
constexpr float bfloat_to_float(std::uint16_t bits) { return bits_to_float(std::uint32_t{bits} << 16); }
constexpr std::uint16_t float_to_bfloat(float value) {
  std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
float e4m3fn_to_float(std::uint8_t bits);
std::uint8_t float_to_e4m3fn(float value);
float e5m2_to_float(std::uint8_t bits);
std::uint8_t float_to_e5m2(float value);
}  // namespace detail

/// IEEE 754 binary16 storage; arithmetic happens in float. Conversion rounds to nearest even.
struct float16 {
  std::uint16_t bits = 0;
  float16() = default;
  float16(float value) : bits(detail::float_to_half(value)) {}
  operator float() const { return detail::half_to_float(bits); }
};

/// bfloat16 storage (the upper half of a binary32); arithmetic happens in float. Rounds to nearest even.
struct bfloat16 {
  std::uint16_t bits = 0;
  bfloat16() = default;
  constexpr bfloat16(float value) : bits(detail::float_to_bfloat(value)) {}
  constexpr operator float() const { return detail::bfloat_to_float(bits); }
};

/// 8-bit floats (Micikevicius et al., "FP8 formats for deep learning", 2022): four bits of exponent and three
/// of mantissa, no infinities, 448 the greatest; and five and two, the upper half of a binary16. Conversion
/// rounds to nearest even; what is beyond the greatest becomes NaN, or infinity where there is one.
struct float8_e4m3fn {
  std::uint8_t bits = 0;
  float8_e4m3fn() = default;
  float8_e4m3fn(float value) : bits(detail::float_to_e4m3fn(value)) {}
  operator float() const { return detail::e4m3fn_to_float(bits); }
};
struct float8_e5m2 {
  std::uint8_t bits = 0;
  float8_e5m2() = default;
  float8_e5m2(float value) : bits(detail::float_to_e5m2(value)) {}
  operator float() const { return detail::e5m2_to_float(bits); }
};

/// Whether T is one of the floats that C++ computes with as float.
template <class T>
inline constexpr bool is_storage_float = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16> ||
                                         std::is_same_v<T, float8_e4m3fn> || std::is_same_v<T, float8_e5m2>;

enum class DTypeClass : std::uint8_t { Bool, Int, UInt, Float };

enum class DType : std::uint8_t {
#define KILN_DTYPE(Enum, Type, Name, Short, Bytes, Class) Enum,
#define KILN_STORED_DTYPE KILN_DTYPE
#include <kiln/dtype.def>
#undef KILN_DTYPE
};

struct DTypeInfo {
  std::string_view name;
  std::string_view short_name;
  std::uint8_t bytes;
  DTypeClass cls;
};

inline constexpr DTypeInfo kDTypeInfo[] = {
#define KILN_DTYPE(Enum, Type, Name, Short, Bytes, Class) {Name, Short, Bytes, DTypeClass::Class},
#define KILN_STORED_DTYPE KILN_DTYPE
#include <kiln/dtype.def>
#undef KILN_DTYPE
};
/// All dtypes, and those that are computed in, which come first.
inline constexpr int kAllDTypeCount = static_cast<int>(sizeof(kDTypeInfo) / sizeof(kDTypeInfo[0]));
inline constexpr int kDTypeCount = kAllDTypeCount - 2;

constexpr const DTypeInfo& info(DType t) { return kDTypeInfo[static_cast<int>(t)]; }
constexpr std::string_view name(DType t) { return info(t).name; }
/// The dtype of a name ("float32") or a short name ("f32").
constexpr std::optional<DType> dtype_from_name(std::string_view name) {
  for (int i = 0; i < kAllDTypeCount; ++i)
    if (kDTypeInfo[i].name == name || kDTypeInfo[i].short_name == name) return static_cast<DType>(i);
  return std::nullopt;
}
/// Prints the name.
std::ostream& operator<<(std::ostream& out, DType t);
constexpr std::int64_t size_of(DType t) { return info(t).bytes; }
constexpr bool is_float(DType t) { return info(t).cls == DTypeClass::Float; }
constexpr bool is_half(DType t) { return t == DType::Float16 || t == DType::BFloat16; }
/// A float of less than 32 bits, in which nothing is computed to the end.
constexpr bool is_narrow(DType t) { return is_float(t) && size_of(t) < 4; }
/// A type of numbers in memory alone: operations that compute take them as another, see computed_as().
constexpr bool is_only_stored(DType t) { return static_cast<int>(t) >= kDTypeCount; }
static_assert(is_only_stored(DType::Float8E4M3FN) && !is_only_stored(DType::Float64));
constexpr bool is_bool(DType t) { return t == DType::Bool; }
constexpr bool is_signed_int(DType t) { return info(t).cls == DTypeClass::Int; }
constexpr bool is_unsigned_int(DType t) { return info(t).cls == DTypeClass::UInt; }
constexpr bool is_int(DType t) { return is_signed_int(t) || is_unsigned_int(t); }

template <class T>
struct DTypeOf;
#define KILN_DTYPE(Enum, Type, Name, Short, Bytes, Class) \
  template <>                                             \
  struct DTypeOf<Type> {                                  \
    static constexpr DType value = DType::Enum;           \
  };                                                      \
  static_assert(sizeof(Type) == Bytes);
#define KILN_STORED_DTYPE KILN_DTYPE
#include <kiln/dtype.def>
#undef KILN_DTYPE

namespace detail {
// long and long long are two types of 64 bits; std::int64_t is only one of them, here goes the other.
using OtherInt64 = std::conditional_t<std::is_same_v<std::int64_t, long>, long long, long>;
using OtherUInt64 = std::make_unsigned_t<OtherInt64>;
static_assert(sizeof(OtherInt64) == sizeof(std::int64_t));
}  // namespace detail
template <>
struct DTypeOf<detail::OtherInt64> : DTypeOf<std::int64_t> {};
template <>
struct DTypeOf<detail::OtherUInt64> : DTypeOf<std::uint64_t> {};

/// The DType of a C++ storage type, e.g. dtype_of<float> == DType::Float32.
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

template <class T>
concept ElementType = requires { DTypeOf<T>::value; };

/// The dtype that operations take 8-bit floats in, where they do more than move or choose: bfloat16, which
/// holds the values of both exactly. Any other dtype as it is.
constexpr DType computed_as(DType t) { return is_only_stored(t) ? DType::BFloat16 : t; }

/// Calls `f.template operator()<T>()` with the storage type of `t`.
template <class F>
decltype(auto) dispatch_stored(DType t, F&& f) {
  switch (t) {
#define KILN_DTYPE(Enum, Type, Name, Short, Bytes, Class) \
  case DType::Enum: return f.template operator()<Type>();
#define KILN_STORED_DTYPE KILN_DTYPE
#include <kiln/dtype.def>
#undef KILN_DTYPE
  }
  __builtin_unreachable();
}

namespace detail {
[[noreturn]] void nothing_computes(DType t);
}

/// The same of the types that are computed in. InternalError: `t` is only stored.
template <class F>
decltype(auto) dispatch(DType t, F&& f) {
  switch (t) {
#define KILN_DTYPE(Enum, Type, Name, Short, Bytes, Class) \
  case DType::Enum: return f.template operator()<Type>();
#define KILN_STORED_DTYPE(Enum, ...) \
  case DType::Enum: break;
#include <kiln/dtype.def>
#undef KILN_DTYPE
  }
  detail::nothing_computes(t);
}

/// Result type of combining two typed operands (Python array API promotion table; int+float gives the
/// float type, int64+uint64 and mixed halves give float32, bool gives way to anything). An 8-bit float gives
/// way to any other float; two different ones give bfloat16.
DType promote(DType a, DType b);

}  // namespace kiln
