// Signs, neighbours and exact remainders.
#include "math/math.h"
#include "math/math_core.h"

namespace kiln::lower::math {

using kernel::abs;
using kernel::bitcast;
using kernel::call;
using kernel::floor;
using kernel::MathFn;
using kernel::round_even;

namespace {

/// x mod y in [0, y) and, where x / y < 2^48, the floor of the quotient; Float64 holding Float32 values, x >=
/// 0, y > 0.
struct Division {
  E rest, quotient;
};

/// Takes off multiples of 2^200 y, 2^150 y, ... (each exact: the remainder always fits 27 bits), then of y.
Division divide_exactly(E x, E y) {
  const E inverse = 1.0 / y;
  E r = x;
  // Float32 quotients stay below 2^278.
  for (const double step : {0x1p250, 0x1p200, 0x1p150, 0x1p100, 0x1p50}) {
    const E q = round_even(r * (inverse * (1 / step)));
    r = fma(q, -(y * step), r);
  }
  // |r| <= 2^49 y, of either sign. The quotient may be off by one either way.
  E q = floor(r * inverse);
  r = fma(q, -y, r);
  const E below = r < 0.0, above = r >= y;
  q = select(below, q - 1.0, select(above, q + 1.0, q));
  r = select(below, r + y, select(above, r - y, r));
  return {r, q};
}

}  // namespace

E fmod(E x, E y) {
  if (is_f64(x)) return call(MathFn::Fmod, x, y);
  const E a = to_f64(abs(x)), b = to_f64(abs(y));
  E r = to_f32(divide_exactly(a, b).rest);
  r = with_sign(r, sign_of(x));
  r = select(abs(y) == kInf, x, r);
  const E bad = (abs(x) == kInf) | (y == 0.0) | (x != x) | (y != y);
  return select(bad, x.lit(kNaN), r);
}

E remainder(E x, E y) {
  const E zero = x.lit(0);
  if (is_unsigned_int(x.type())) return x % y;
  const E r = is_int(x.type()) ? x % y : fmod(x, y);
  // Opposite signs and not zero: one divisor up. Floats round the sum once (x % y may round to y, as in
  // Python).
  const E opposite = (r < zero) ^ (y < zero);
  const E moved = select((r != zero) & opposite, r + y, r);
  if (is_int(x.type())) return moved;
  return select(r == zero, with_sign(abs(r), sign_of(y)), moved);
}

E floor_divide(E x, E y) {
  const E zero = x.lit(0);
  if (is_unsigned_int(x.type())) return x / y;
  if (is_int(x.type())) {
    const E r = x % y;
    const E down = (r != zero) & ((r < zero) ^ (y < zero));
    return select(down, x / y - x.lit(1), x / y);
  }
  const E negative = sign_of(x) ^ sign_of(y);
  if (is_f64(x)) {
    // As CPython: (x - mod) / y is within rounding of an integer.
    const E r = fmod(x, y);
    const E down = (r != zero) & ((r < zero) ^ (y < zero));
    const E q = (x - r) / y - select(down, x.lit(1), zero);
    const E whole = floor(q);
    const E nearest = select(q - whole > 0.5, whole + 1.0, whole);
    const E result = select(q == zero, with_sign(zero, negative), nearest);
    return select(y == zero, x / y, result);
  }
  const E a = to_f64(x), b = to_f64(y);
  const Division d = divide_exactly(abs(a), abs(b));
  const E is_negative = negative != negative.lit(0);
  // Towards minus infinity: a negative quotient with a rest goes one down.
  const E q = select(is_negative & (d.rest != 0.0), d.quotient + 1.0, d.quotient);
  E result = with_sign(to_f32(q), negative);
  const E ratio = a / b;
  result = select(abs(ratio) < 0x1p48, result, to_f32(ratio));  // beyond, floor is below Float32's last bit
  // A finite over an infinity: -1 or 0. An infinity over anything but 0 has no remainder: NaN, as CPython and
  // numpy.
  const E beside_inf = select(is_negative & (x != zero), x.lit(-1), with_sign(zero, negative));
  result = select((abs(y) == kInf) & (abs(x) < kInf), beside_inf, result);
  result = select(abs(x) == kInf, x.lit(kNaN), result);
  return select(y == zero, x / y, result);
}

E sign(E x) {
  if (is_bool(x.type())) return x;
  const E zero = x.lit(0);
  if (is_unsigned_int(x.type())) return select(x == zero, zero, x.lit(1));
  // The rest is a zero or a NaN: x + 0 drops the sign of -0.
  return select(x > zero, x.lit(1), select(x < zero, x.lit(-1), x + zero));
}

E signbit(E x) {
  if (!is_float(x.type())) return x < x.lit(0);
  const E bits = sign_of(x);
  return bits != bits.lit(0);
}

E copysign(E x, E y) { return with_sign(abs(x), sign_of(y)); }

E nextafter(E x, E y, DType type) {
  if (is_f64(x)) return call(MathFn::Nextafter, x, y);
  const bool f16 = type == DType::Float16;
  // One up in the magnitude's bits away from zero, one down towards it. A half type's unit is 2^13 or 2^16
  // units of the float that carries it.
  const E unit = x.bits(DType::Int32, f16 ? 1 << 13 : type == DType::BFloat16 ? 1 << 16 : 1);
  const E magnitude = abs(x), bits = bitcast(magnitude, DType::Int32);
  E up = bitcast(bits + unit, DType::Float32), down = bitcast(bits - unit, DType::Float32);
  if (f16) {
    // float16's subnormals are evenly spaced where Float32 still refines, and 65504 is its last finite value.
    up = select(magnitude < 0x1p-14, magnitude + 0x1p-24, up);
    up = select(up > 65504.0, x.lit(kInf), up);
    down = select(magnitude <= 0x1p-14, magnitude - 0x1p-24, down);
    down = select(magnitude == kInf, x.lit(65504), down);
  }
  const E away = (x < y) ^ (x < 0.0);
  const E least = f16 ? x.lit(0x1p-24) : bitcast(unit, DType::Float32);
  E r = with_sign(select(away, up, down), sign_of(x));
  r = select(x == 0.0, with_sign(least, sign_of(y)), r);
  r = select(x == y, y, r);
  return select((x != x) | (y != y), x + y, r);
}

namespace {
/// 0 <= y < width of x's type.
E shift_in_range(E x, E y) {
  const E width = y.lit(static_cast<double>(size_of(x.type()) * 8));
  return is_signed_int(y.type()) ? (y >= y.lit(0)) & (y < width) : y < width;
}
}  // namespace

E shift_left(E x, E y) {
  const E ok = shift_in_range(x, y);
  return select(ok, x << select(ok, y, y.lit(0)), x.lit(0));
}

namespace {
/// Of uint64, by halves: no partial sum passes 64 bits.
E multiply_high_u64(E x, E y) {
  const E half = x.lit(32), low = x.bits(DType::UInt64, 0xffffffffu);
  const E x0 = x & low, x1 = x >> half, y0 = y & low, y1 = y >> half;
  const E middle = x1 * y0 + (x0 * y0 >> half);
  return x1 * y1 + (middle >> half) + ((x0 * y1 + (middle & low)) >> half);
}
}  // namespace

E multiply_high(E x, E y) {
  const DType t = x.type();
  if (t == DType::UInt64) return multiply_high_u64(x, y);
  if (t == DType::Int64) {  // as unsigned, a negative operand is 2^64 too great
    const E high = cast(multiply_high_u64(cast(x, DType::UInt64), cast(y, DType::UInt64)), t);
    return high - (y & (x >> x.lit(63))) - (x & (y >> y.lit(63)));
  }
  const DType wide = is_signed_int(t) ? DType::Int64 : DType::UInt64;
  const E product = cast(x, wide) * cast(y, wide);
  return cast(product >> product.lit(static_cast<double>(8 * size_of(t))), t);
}

E shift_right(E x, E y) {
  // An arithmetic shift by width - 1 leaves the sign everywhere.
  const E last = y.lit(static_cast<double>(size_of(x.type()) * 8 - 1));
  const E ok = shift_in_range(x, y);
  if (is_signed_int(x.type())) return x >> select(ok, y, last);
  return select(ok, x >> select(ok, y, y.lit(0)), x.lit(0));
}

}  // namespace kiln::lower::math
