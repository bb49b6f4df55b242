// Element types: the DType enumeration, its property table, and the two half-precision storage types.
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

enum class DTypeClass : std::uint8_t { Bool, Int, UInt, Float };

enum class DType : std::uint8_t {
#define KILN_DTYPE(Enum, Type, Name, Short, Bytes, Class) Enum,
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
#include <kiln/dtype.def>
#undef KILN_DTYPE
};
inline constexpr int kDTypeCount = static_cast<int>(sizeof(kDTypeInfo) / sizeof(kDTypeInfo[0]));

constexpr const DTypeInfo& info(DType t) { return kDTypeInfo[static_cast<int>(t)]; }
constexpr std::string_view name(DType t) { return info(t).name; }
/// The dtype of a name ("float32") or a short name ("f32").
constexpr std::optional<DType> dtype_from_name(std::string_view name) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (kDTypeInfo[i].name == name || kDTypeInfo[i].short_name == name) return static_cast<DType>(i);
  return std::nullopt;
}
/// Prints the name.
std::ostream& operator<<(std::ostream& out, DType t);
constexpr std::int64_t size_of(DType t) { return info(t).bytes; }
constexpr bool is_float(DType t) { return info(t).cls == DTypeClass::Float; }
constexpr bool is_half(DType t) { return t == DType::Float16 || t == DType::BFloat16; }
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

/// Calls `f.template operator()<T>()` with the storage type of `t`.
template <class F>
decltype(auto) dispatch(DType t, F&& f) {
  switch (t) {
#define KILN_DTYPE(Enum, Type, Name, Short, Bytes, Class) \
  case DType::Enum: return f.template operator()<Type>();
#include <kiln/dtype.def>
#undef KILN_DTYPE
  }
  __builtin_unreachable();
}

/// Result type of combining two typed operands (Python array API promotion table; int+float gives the
/// float type, int64+uint64 and mixed halves give float32, bool gives way to anything).
DType promote(DType a, DType b);

}  // namespace kiln
