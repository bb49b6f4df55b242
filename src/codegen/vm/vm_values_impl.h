// The vm's values: element types as lanes have them, conversions between them, one primitive on one value.
// For vm_loops_impl.h alone, whose invariant holds here too.
#include "codegen/vm/vm_loops.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace kiln::codegen {
namespace {
namespace KILN_VM_ISA {

using kernel::Monoid;
using kernel::Prim;

// ---- element types ----

struct Half {
  std::uint16_t bits;
};
struct BHalf {
  std::uint16_t bits;
};
struct Truth {
  std::uint8_t value;
};  // a Bool

template <class T, class U>
inline constexpr bool same = false;
template <class T>
inline constexpr bool same<T, T> = true;
template <class T>
struct ComparedAs {
  using type = T;
};
template <>
struct ComparedAs<Truth> {
  using type = std::uint8_t;
};

/// The form in which a dtype's elements lie in vectors.
template <DType T>
struct Lane;
#define KILN_LANE(Enum, Type) \
  template <>                 \
  struct Lane<DType::Enum> {  \
    using type = Type;        \
  };
KILN_LANE(Bool, Truth)
KILN_LANE(Int8, std::int8_t)
KILN_LANE(Int16, std::int16_t)
KILN_LANE(Int32, std::int32_t)
KILN_LANE(Int64, std::int64_t)
KILN_LANE(UInt8, std::uint8_t)
KILN_LANE(UInt16, std::uint16_t)
KILN_LANE(UInt32, std::uint32_t)
KILN_LANE(UInt64, std::uint64_t)
KILN_LANE(Float16, Half)
KILN_LANE(BFloat16, BHalf)
KILN_LANE(Float32, float)
KILN_LANE(Float64, double)
#undef KILN_LANE

template <class T>
inline constexpr bool is_fp = same<T, float> || same<T, double>;
template <class T>
inline constexpr bool is_half_lane = same<T, Half> || same<T, BHalf>;
template <class T>
inline constexpr bool is_integer = !is_fp<T> && !is_half_lane<T> && !same<T, Truth>;
template <class T>
inline constexpr bool is_signed = is_integer<T> && T(-1) < T(1);
template <>
inline constexpr bool is_signed<Half> = false;
template <>
inline constexpr bool is_signed<BHalf> = false;
template <>
inline constexpr bool is_signed<Truth> = false;

template <class T>
struct UnsignedOf {
  using type = T;
};
template <>
struct UnsignedOf<std::int8_t> {
  using type = std::uint8_t;
};
template <>
struct UnsignedOf<std::int16_t> {
  using type = std::uint16_t;
};
template <>
struct UnsignedOf<std::int32_t> {
  using type = std::uint32_t;
};
template <>
struct UnsignedOf<std::int64_t> {
  using type = std::uint64_t;
};
template <>
struct UnsignedOf<float> {
  using type = std::uint32_t;
};
template <>
struct UnsignedOf<double> {
  using type = std::uint64_t;
};
template <class T>
using Unsigned = typename UnsignedOf<T>::type;

/// No iteration of the loop that follows reads what another one writes: `out` may be an operand, but lane by
/// lane.
#if defined(__clang__)
#define KILN_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define KILN_INDEPENDENT _Pragma("GCC ivdep")
#endif
#define KILN_INLINE __attribute__((always_inline)) inline

template <class To, class From>
KILN_INLINE To bits_as(From v) {
  return __builtin_bit_cast(To, v);
}

template <class T>
constexpr T lowest() {
  if constexpr (is_signed<T>)
    return static_cast<T>(T(1) << (sizeof(T) * 8 - 1));
  else
    return T(0);
}
template <class T>
constexpr T greatest() {
  return static_cast<T>(~lowest<T>());
}

// ---- conversions ----

KILN_INLINE float to_float(BHalf v) { return bits_as<float>(std::uint32_t{v.bits} << 16); }

KILN_INLINE BHalf to_bhalf(float v) {
  const std::uint32_t bits = bits_as<std::uint32_t>(v);
  const std::uint32_t rounded = bits + (0x7fffu + ((bits >> 16) & 1u));
  return {static_cast<std::uint16_t>((v != v ? bits | 0x400000u : rounded) >> 16)};
}

/// Integer arithmetic, where the instruction is missing: 13 bits to the left the fields are in place but for
/// the exponent, 112 too small; a subnormal is added to the exponent of 2^-14, which is then subtracted.
KILN_INLINE float to_float(Half v) {
  constexpr std::uint32_t rebias = 112u << 23;
  const std::uint32_t magnitude = (v.bits & 0x7fffu) << 13;
  const std::uint32_t normal = magnitude + rebias;
  const float shifted = bits_as<float>(magnitude | (113u << 23));
  const std::uint32_t subnormal = bits_as<std::uint32_t>(shifted - 0x1p-14f);
  std::uint32_t out = magnitude < (1u << 23) ? subnormal : normal;
  out = magnitude < (0x7c00u << 13) ? out : normal + rebias;
  return bits_as<float>(out | (v.bits & 0x8000u) << 16);
}

KILN_INLINE Half to_half(float v) {
  const std::uint32_t bits = bits_as<std::uint32_t>(v), magnitude = bits & 0x7fffffffu;
  const std::uint32_t odd = (magnitude >> 13) & 1u;
  std::uint32_t out = (magnitude - (112u << 23) + odd + 0xfffu) >> 13;
  // Below 2^-14: adding 1/2 leaves the subnormal's digits, rounded, in the low bits.
  const std::uint32_t small = bits_as<std::uint32_t>(bits_as<float>(magnitude) + 0.5f) - 0x3f000000u;
  out = magnitude < (113u << 23) ? small : out;
  const std::uint32_t nan = ((magnitude >> 13) & 0x3ffu) | 0x7e00u;
  const std::uint32_t beyond = magnitude > 0x7f800000u ? nan : 0x7c00u;
  out = magnitude < (143u << 23) ? out : beyond;
  return {static_cast<std::uint16_t>(out | ((bits >> 16) & 0x8000u))};
}

/// Truncates, saturates, NaN gives 0. The operand is brought into range first, so that the conversion is
/// defined.
template <class To, class From>
KILN_INLINE To saturate(From v) {
  constexpr int digits = static_cast<int>(sizeof(To)) * 8 - is_signed<To>;
  constexpr From bound = digits == 64   ? From(0x1p64)
                         : digits == 63 ? From(0x1p63)
                                        : From(1ull << (digits & 63));
  // The greatest value of From below the bound.
  constexpr From ulp = From(bound) * (same<From, float> ? From(0x1p-24) : From(0x1p-53));
  constexpr From below = bound - ulp;
  constexpr From least = is_signed<To> ? -bound : From(0);
  From y = v == v ? v : From(0);
  y = y < least ? least : y;
  y = y > below ? below : y;
  To out;
  if constexpr (sizeof(To) < 4)
    out = static_cast<To>(static_cast<std::int32_t>(y));
  else
    out = static_cast<To>(y);
  return v >= bound ? greatest<To>() : out;
}

template <class To, class From>
constexpr bool converts() {
  if (is_half_lane<To>) return same<To, From> || same<From, float> || same<From, Truth> || is_half_lane<From>;
  return true;  // other types round twice on their way to a half: left to the general form
}

template <class To, class From>
KILN_INLINE To convert(From v) {
  if constexpr (same<To, From>)
    return v;
  else if constexpr (is_half_lane<From>)
    return convert<To, float>(to_float(v));
  else if constexpr (same<From, Truth>)
    return convert<To, std::uint8_t>(v.value);
  else if constexpr (same<To, Truth>)
    return {static_cast<std::uint8_t>(v != From(0))};
  else if constexpr (same<To, Half>)
    return to_half(static_cast<float>(v));
  else if constexpr (same<To, BHalf>)
    return to_bhalf(static_cast<float>(v));
  else if constexpr (is_fp<From> && is_integer<To>)
    return saturate<To>(v);
  else
    return static_cast<To>(v);
}

// ---- one primitive on values ----

constexpr bool is_compare(Prim p) { return p == Prim::Eq || p == Prim::Ne || p == Prim::Lt || p == Prim::Le; }

template <Prim P, class T>
KILN_INLINE Truth compare(T a, T b) {
  if constexpr (P == Prim::Eq) return {static_cast<std::uint8_t>(a == b)};
  if constexpr (P == Prim::Ne) return {static_cast<std::uint8_t>(a != b)};
  if constexpr (P == Prim::Lt) return {static_cast<std::uint8_t>(a < b)};
  if constexpr (P == Prim::Le) return {static_cast<std::uint8_t>(a <= b)};
}

/// 2^b as a product of two factors, so that only the last product rounds. 1.5 · 2^23 leaves b in the low
/// bits: unlike a conversion, that is defined for the NaN which comes with a NaN `a`.
KILN_INLINE float scale(float a, float b) {
  const std::uint32_t n = bits_as<std::uint32_t>(b + 0x1.8p23f) - 0x4b400000u;
  const std::uint32_t half = static_cast<std::uint32_t>(static_cast<std::int32_t>(n) >> 1);
  const float first = bits_as<float>((half << 23) + 0x3f800000u);
  return a * first * bits_as<float>(((n - half) << 23) + 0x3f800000u);
}

KILN_INLINE std::uint32_t exponent_bits(float a) {
  const float normal = a < 0x1p-126f ? a * 0x1p23f : a;
  return (bits_as<std::uint32_t>(normal) - 0x3f400000u) & 0xff800000u;
}
KILN_INLINE float mantissa(float a) {
  const float normal = a < 0x1p-126f ? a * 0x1p23f : a;
  const float m = bits_as<float>(bits_as<std::uint32_t>(normal) - exponent_bits(a));
  return a > 0 && a < __builtin_inff() ? m : 1.0f;
}
KILN_INLINE float exponent(float a) {
  float n = static_cast<float>(static_cast<std::int32_t>(exponent_bits(a))) * 0x1p-23f;
  n = n + (a < 0x1p-126f ? -23.0f : 0.0f);
  n = a < __builtin_inff() ? n : a;
  n = a == 0 ? -__builtin_inff() : n;
  return a < 0 ? __builtin_nanf("") : n;
}

template <Prim P, class T>
constexpr bool applies() {
  switch (P) {
    case Prim::Const:
    case Prim::Param:
    case Prim::Slot:
    case Prim::Var:
    case Prim::Acc:
    case Prim::Load:
    case Prim::Running:
    case Prim::Before:
    case Prim::Earlier:
    case Prim::Later:
    case Prim::Cast:
    case Prim::CastInRange:
    case Prim::Bitcast:
    case Prim::Call1:
    case Prim::Call2:
    case Prim::Select:
    case Prim::Philox:
    case Prim::Eq:
    case Prim::Ne:
    case Prim::Lt:
    case Prim::Le: return false;
    case Prim::Neg:
    case Prim::Abs:
    case Prim::Add:
    case Prim::Sub:
    case Prim::Mul:
    case Prim::Div: return is_fp<T> || is_integer<T>;
    case Prim::Min:
    case Prim::Max: return is_fp<T> || is_integer<T>;
    case Prim::Sqrt:
    case Prim::Floor:
    case Prim::Ceil:
    case Prim::Trunc:
    case Prim::RoundEven:
    case Prim::Fma: return is_fp<T>;
    case Prim::Not:
    case Prim::And:
    case Prim::Or:
    case Prim::Xor: return is_integer<T> || same<T, Truth>;
    case Prim::Rem:
    case Prim::Shl:
    case Prim::Shr: return is_integer<T>;
    case Prim::DivBounded:
    case Prim::Scale:
    case Prim::Exponent:
    case Prim::Mantissa: return same<T, float>;
    case Prim::FromIndex:
    case Prim::IndexDiv: return same<T, std::int64_t>;
    case Prim::Native: return false;
  }
  return false;  // a primitive that is new: the general form serves it
}

template <Prim P, class T>
KILN_INLINE T apply_float(T a, T b, T c) {
  constexpr bool single = same<T, float>;
  using Bits = Unsigned<T>;
  constexpr Bits sign = Bits(1) << (sizeof(T) * 8 - 1);
  if constexpr (P == Prim::Neg) return bits_as<T>(static_cast<Bits>(bits_as<Bits>(a) ^ sign));
  if constexpr (P == Prim::Abs) return bits_as<T>(static_cast<Bits>(bits_as<Bits>(a) & ~sign));
  if constexpr (P == Prim::Sqrt) {
    if constexpr (single)
      return __builtin_sqrtf(a);
    else
      return __builtin_sqrt(a);
  }
  if constexpr (P == Prim::Floor) {
    if constexpr (single)
      return __builtin_floorf(a);
    else
      return __builtin_floor(a);
  }
  if constexpr (P == Prim::Ceil) {
    if constexpr (single)
      return __builtin_ceilf(a);
    else
      return __builtin_ceil(a);
  }
  if constexpr (P == Prim::Trunc) {
    if constexpr (single)
      return __builtin_truncf(a);
    else
      return __builtin_trunc(a);
  }
  if constexpr (P == Prim::RoundEven) {
    if constexpr (single)
      return __builtin_rintf(a);
    else
      return __builtin_rint(a);
  }
  if constexpr (P == Prim::Add) return a + b;
  if constexpr (P == Prim::Sub) return a - b;
  if constexpr (P == Prim::Mul) return a * b;
  if constexpr (P == Prim::Div || P == Prim::DivBounded) return a / b;
  if constexpr (P == Prim::Min) {
    const T m = a < b ? a : b;
    return a != a ? a : m;
  }
  if constexpr (P == Prim::Max) {
    const T m = a > b ? a : b;
    return a != a ? a : m;
  }
  if constexpr (P == Prim::Fma) {
    if constexpr (single)
      return __builtin_fmaf(a, b, c);
    else
      return __builtin_fma(a, b, c);
  }
  if constexpr (P == Prim::Scale) return scale(a, b);
  if constexpr (P == Prim::Exponent) return exponent(a);
  if constexpr (P == Prim::Mantissa) return mantissa(a);
}

/// Quotient of integers of at most 32 bits through a float in which operands are exact and whose quotient
/// never rounds up to an integer (see legalize_vector.cpp); longer ones take the divider one by one.
template <class T>
KILN_INLINE T quotient(T a, T b) {
  if constexpr (is_signed<T>) {
    const T safe = b == T(0) || b == T(-1) ? T(1) : b;
    T q;
    if constexpr (sizeof(T) == 8)
      q = a / safe;
    else if constexpr (sizeof(T) == 4)
      q = static_cast<T>(static_cast<double>(a) / static_cast<double>(safe));
    else
      q = static_cast<T>(static_cast<std::int32_t>(static_cast<float>(a) / static_cast<float>(safe)));
    q = b == T(-1) ? static_cast<T>(Unsigned<T>(0) - static_cast<Unsigned<T>>(a)) : q;
    return b == T(0) ? T(0) : q;
  } else {
    const T safe = b == T(0) ? T(1) : b;
    T q;
    if constexpr (sizeof(T) == 8)
      q = a / safe;
    else if constexpr (sizeof(T) == 4)
      q = static_cast<T>(static_cast<double>(a) / static_cast<double>(safe));
    else
      q = static_cast<T>(static_cast<std::int32_t>(static_cast<float>(a) / static_cast<float>(safe)));
    return b == T(0) ? T(0) : q;
  }
}

template <Prim P, class T>
KILN_INLINE T apply_int(T a, T b) {
  using U = Unsigned<T>;
  using W = decltype(U{} * 1u);  // at least 32 bits, unsigned: wraps, and narrowing keeps the low bits
  const W ua = static_cast<U>(a), ub = static_cast<U>(b);
  constexpr W last = sizeof(T) * 8 - 1;
  if constexpr (P == Prim::Neg) return static_cast<T>(W(0) - ua);
  if constexpr (P == Prim::Abs) return a < T(0) ? static_cast<T>(W(0) - ua) : a;
  if constexpr (P == Prim::Not) return static_cast<T>(~ua);
  if constexpr (P == Prim::Add) return static_cast<T>(ua + ub);
  if constexpr (P == Prim::Sub) return static_cast<T>(ua - ub);
  if constexpr (P == Prim::Mul) return static_cast<T>(ua * ub);
  if constexpr (P == Prim::Div) return quotient(a, b);
  if constexpr (P == Prim::FromIndex) return a;
  if constexpr (P == Prim::IndexDiv)  // see llvm_expressions.cpp
    return static_cast<T>((static_cast<double>(a) + 0.5) * (1.0 / static_cast<double>(b)));
  if constexpr (P == Prim::Rem) {
    const T r = static_cast<T>(ua - static_cast<W>(static_cast<U>(quotient(a, b))) * ub);
    return b == T(0) ? T(0) : r;
  }
  if constexpr (P == Prim::Min) return a < b ? a : b;
  if constexpr (P == Prim::Max) return a > b ? a : b;
  if constexpr (P == Prim::And) return static_cast<T>(ua & ub);
  if constexpr (P == Prim::Or) return static_cast<T>(ua | ub);
  if constexpr (P == Prim::Xor) return static_cast<T>(ua ^ ub);
  if constexpr (P == Prim::Shl) return static_cast<T>(ua << (ub & last));
  if constexpr (P == Prim::Shr) return static_cast<T>(a >> (ub & last));
}

template <Prim P, class T>
KILN_INLINE T apply(T a, T b, T c) {
  if constexpr (same<T, Truth>) {
    if constexpr (P == Prim::Not)
      return {static_cast<std::uint8_t>(a.value ^ 1)};
    else
      return {apply_int<P, std::uint8_t>(a.value, b.value)};
  } else if constexpr (is_fp<T>) {
    return apply_float<P, T>(a, b, c);
  } else {
    return apply_int<P, T>(a, b);
  }
}

}  // namespace KILN_VM_ISA
}  // namespace
}  // namespace kiln::codegen
