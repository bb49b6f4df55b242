// Pieces shared by the math_*.cpp files: Horner, clamps, range reduction, and Float64 cores for Float32
// functions whose cost does not matter: computed in Float64 and rounded once.
#pragma once

#include "kernel/expr.h"

#include <initializer_list>
#include <limits>

namespace kiln::lower::math {

using kernel::E;

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kLog2e = 0x1.71547652b82fep+0;
inline constexpr double kLn2 = 0x1.62e42fefa39efp-1;

inline bool is_f64(E x) { return x.type() == DType::Float64; }
inline E to_f64(E x) { return kernel::cast(x, DType::Float64); }
inline E to_f32(E x) { return kernel::cast(x, DType::Float32); }

/// c[0] + c[1] x + c[2] x^2 + ...
inline E horner(E x, std::initializer_list<double> c) {
  const double* k = c.end();
  E sum = x.lit(*--k);
  while (k != c.begin()) sum = fma(sum, x, x.lit(*--k));
  return sum;
}

/// The same by pairs, (c[0] + c[1] x) + (c[2] + c[3] x) x^2 + ..., in half the time: where a long polynomial
/// is waited for and x^2 is at hand, or worth its instruction.
inline E horner_pairs(E x, E x2, std::initializer_list<double> c) {
  const auto pair = [&](const double* k) {
    return k + 1 < c.end() ? fma(x, x.lit(k[1]), x.lit(k[0])) : x.lit(*k);
  };
  const double* k = c.begin() + (c.size() - 1) / 2 * 2;
  E sum = pair(k);
  while (k != c.begin()) sum = fma(sum, x2, pair(k -= 2));
  return sum;
}

// Clamps that let NaN through: with the constant first, one minps/maxps.
inline E at_most(E x, double limit) { return select(x.lit(limit) < x, x.lit(limit), x); }
inline E at_least(E x, double limit) { return select(x < x.lit(limit), x.lit(limit), x); }
inline E within(E x, double low, double high) { return at_least(at_most(x, high), low); }

/// y - whole, where whole = floor(y): a form of its own, for which AVX-512 has an instruction where y is
/// within() two numbers. It may be rounded down, and a zero may have either sign.
inline E above_floor(E y, E whole) { return fma(whole, y.lit(-1), y); }

/// |x| without the sign of a NaN; the sign bit alone; a non-negative magnitude given a sign.
inline DType bits_type(E x) { return is_f64(x) ? DType::UInt64 : DType::UInt32; }
inline E sign_mask(E x) { return x.bits(bits_type(x), is_f64(x) ? 0x8000000000000000u : 0x80000000u); }
inline E sign_of(E x) { return bitcast(x, bits_type(x)) & sign_mask(x); }
inline E with_sign(E magnitude, E sign_bits) {
  return bitcast(bitcast(magnitude, sign_bits.type()) | sign_bits, magnitude.type());
}

/// round(x * factor) of a Float32, at most 0, in two forms: `whole` as a float, and `power` = 2^whole in one
/// shift. Pre: x * factor > -126 (any garbage for NaN, which `whole` keeps). Adding 1.5 * 2^23 leaves the
/// integer in the low bits of the significand; the shift drops everything else.
struct Rounded {
  E whole, power;
};
Rounded round_scaled(E x, double factor);

inline constexpr double kLn2Hi = 0x1.62e430p-1;  // ln 2 as a float; fma subtracts n * kLn2Hi exactly
inline constexpr double kLn2Lo = -0x1.05c610p-29;

// One polynomial on |r| <= ln2 / 2, 2^-28.2, in the forms that round least where they are used.
E exp_poly(E r);       // e^r
E exp_poly_rest(E r);  // e^r - 1 - r, to the same absolute error
/// (e^r - 1) / r times a power of two.
E exp_slope(E r, double factor);

/// The integer next to x log2(e), as a float. Pre: |x| <= 2^21 or NaN.
E whole_log2(E x);
/// x = whole ln2 + r, |r| <= ln2 / 2 and a hair. Pre: |x| <= 200 or NaN.
struct Reduced {
  E whole, r;
};
Reduced reduce_exp(E x);

/// The logistic function at z + z_lo, z_lo optional, as power / divisor, power = 2^whole. Pre: -110 <= z <=
/// 80 or NaN. The divisor is within [1/2, 2^117].
struct Logistic {
  E whole, power, divisor;
};
Logistic logistic(E z, E z_lo = {});
/// The same, power and divisor times 2^63, with the power by one shift. An even number more than the other's
/// 127 rounds ties as it does. Pre: -180 <= whole <= 60.
struct LogisticByShift {
  E power, divisor;
};
LogisticByShift logistic_by_shift(E z, E z_lo = {});
/// x times it, right where the power is no float any more; x itself beyond `limit`, from where on the
/// function is 1. Pre: z was bounded at limit or above.
E times_logistic(E x, const Logistic& s, double limit);

// ---- Float64 cores: about 2^-48 relative error, enough to round to Float32 as if exact ----

/// e^x = scale * (1 + expm1); expm1 relative to itself is exact to the same error. Clamps x to [-700, 700].
struct Exp64 {
  E expm1, scale;
  E exp() const { return fma(scale, expm1, scale); }
  E minus_one() const { return fma(scale, expm1, scale - 1.0); }
};
Exp64 exp64(E x);
/// Pre: x is positive, normal and finite (else garbage).
E log64(E x);
/// log(1 + u), relative error kept for tiny u. Pre: -1 < u < 2^1000.
E log1p64(E u);
/// Pre: operands are Float64 from Float32 or of like range. All quadrants, signed zeros and infinities.
E atan2_64(E y, E x);

}  // namespace kiln::lower::math
