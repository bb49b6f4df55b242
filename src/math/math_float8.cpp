// 8-bit floats to and from their bits. A format is a sign, an exponent and some bits of mantissa, with the
// least normal number 2^(1 - bias), as in kiln/dtype.h.
#include "math/math.h"
#include "math/math_core.h"

namespace kiln::lower::math {

using kernel::abs;
using kernel::bitcast;

namespace {

struct Format {
  int mantissa, bias;
  std::uint32_t greatest;  // bits of the greatest Float32 that rounds to a number
  std::uint32_t beyond;    // what is greater becomes this
};
constexpr Format kE4M3FN{3, 7, 0x43e80000, 0x7f}, kE5M2{2, 15, 0x476fffff, 0x7c};
constexpr std::uint32_t kNaNBits = 0x7f;

/// Bits as those of a Float16, with the sign in its place and the rest `left` bits to the left.
E as_half(E x, int left) {
  const E wide = kernel::cast(bitcast(x, DType::Int8), DType::Int16);  // the sign in all bits above
  const E rest = bitcast(wide << wide.bits(DType::Int16, static_cast<std::uint64_t>(left)), DType::UInt16);
  // Of a shift by 7 the sign is in its place and once more below it.
  const E placed = left == 7 ? rest & rest.bits(DType::UInt16, 0xbfff) : rest;
  return kernel::cast(bitcast(placed, DType::Float16), DType::Float32);
}

/// Float64 as a Float32 rounded to odd, so that a second rounding is right.
E odd_float(E x) {
  const E near = to_f32(x), back = to_f64(near);
  const E bits = bitcast(near, DType::UInt32), zero = bits.bits(DType::UInt32, 0),
          one = bits.bits(DType::UInt32, 1);
  const E below = bits - select(abs(back) > abs(x), one, zero);
  return bitcast(below | select(back != x, one, zero), DType::Float32);
}

E to_bits(E x, const Format& f) {
  if (is_f64(x)) x = odd_float(x);
  const auto word = [&](std::uint64_t bits) { return x.bits(DType::UInt32, bits); };
  const auto exponent = [](int e) { return static_cast<std::uint64_t>(127 + e) << 23; };
  const auto dropped = static_cast<std::uint64_t>(23 - f.mantissa);
  const E bits = bitcast(x, DType::UInt32), magnitude = bits & word(0x7fffffff);
  const E odd = (magnitude >> word(dropped)) & word(1);
  const std::uint64_t half = std::uint64_t{1} << (dropped - 1);
  // less 2^32, as the sum wraps
  const std::uint64_t rebias = (half - 1 - (exponent(-f.bias))) & 0xffffffff;
  const E normal = (magnitude + word(rebias) + odd) >> word(dropped);
  // Below the least normal number: in a sum with this one the unit is that of the subnormal numbers.
  const std::uint64_t unit = exponent(1 - f.bias - f.mantissa + 23);
  const E sum = bitcast(magnitude, DType::Float32) + x.bits(DType::Float32, unit);
  const E small = bitcast(sum, DType::UInt32) - word(unit);
  E out = select(magnitude < word(exponent(1 - f.bias)), small, normal);
  out = select(magnitude > word(f.greatest), word(f.beyond), out);
  if (f.beyond != kNaNBits) out = select(magnitude > word(exponent(128)), word(kNaNBits), out);
  return kernel::cast(out | ((bits >> word(24)) & word(0x80)), DType::UInt8);
}

}  // namespace

/// A Float16 has its exponents, 8 lower, and its NaN is a number there.
E from_float8_e4m3fn(E x) {
  const E value = as_half(x, 7) * 256.0, nan = x.bits(DType::UInt8, kNaNBits);
  return select((x & nan) == nan, value.lit(kNaN), value);
}

/// The upper half of a Float16.
E from_float8_e5m2(E x) { return as_half(x, 8); }

E to_float8_e4m3fn(E x) { return to_bits(x, kE4M3FN); }
E to_float8_e5m2(E x) { return to_bits(x, kE5M2); }

}  // namespace kiln::lower::math
