// Powers and roots.
#include "math/math.h"
#include "math/math_core.h"

#include "support/check.h"

namespace kiln::lower::math {

using kernel::abs;
using kernel::call;
using kernel::MathFn;
using kernel::round_even;
using kernel::sqrt;

namespace {

/// x^n by squaring, n >= 1.
E power(E x, std::uint64_t n) {
  E result;
  for (E square = x;; square = square * square) {
    if (n & 1) result = result ? result * square : square;
    n >>= 1;
    if (n == 0) return result;
  }
}

/// Integer x to a negative exponent, of which `odd` tells the parity: only 1 and -1 have an integer inverse.
E inverse_power(E x, E odd) {
  const E alternating = is_signed_int(x.type()) ? select((x == -1.0) & ~odd, x.lit(1), x) : x;
  const E unit = is_signed_int(x.type()) ? (x == 1.0) | (x == -1.0) : x == 1.0;
  return select(unit, alternating, x.lit(0));
}

/// log64(|x|) with the ends that pow needs: -inf at 0, inf at inf.
E log64_ends(E a) {
  const E y = log64(a);
  return select(a == 0.0, a.lit(-kInf), select(a < kInf, y, a));
}

}  // namespace

E pow(E x, E y) {
  if (is_f64(x)) return call(MathFn::Pow, x, y);
  // |x|^y = e^(y log|x|) in Float64; signs, and the cases where the product is NaN, by selection.
  const E a = to_f64(abs(x)), b = to_f64(y);
  const E product = b * log64_ends(a);
  E r = exp64(product).exp();
  r = to_f32(r);
  // Negative bases: odd integers give the sign, other finite non-integers NaN. From 2^24 on all are even.
  const E half = y * 0.5;
  const E integral = round_even(y) == y;
  const E odd = select(integral, round_even(half), half) != half;  // of integers only
  const E is_odd = odd & integral;
  r = select(is_odd, with_sign(r, sign_of(x)), r);
  const E bad = (x < 0.0) & ~integral & (x > -kInf);
  r = select(bad, x.lit(kNaN), r);
  // pow(+-1, +-inf) = 1; pow(1, NaN) = pow(NaN, 0) = 1.
  const E one = (x == 1.0) | (y == 0.0) | ((x == -1.0) & (abs(y) == kInf));
  return select(one, x.lit(1), r);
}

E pow_int(E x, std::int64_t n) {
  const std::uint64_t magnitude = n < 0 ? 0 - static_cast<std::uint64_t>(n) : static_cast<std::uint64_t>(n);
  if (n == 0) return x.lit(1);
  if (is_int(x.type()))
    return n > 0 ? power(x, magnitude) : inverse_power(x, x.lit(DType::Bool, magnitude & 1));
  KILN_CHECK_THAT(is_float(x.type()) && !is_half(x.type()), name(x.type()));
  if (n >= 1 && n <= 4) return power(x, magnitude);  // at most 1.5 ulp
  if (n == -1) return 1.0 / x;
  if (is_f64(x)) return call(MathFn::Pow, x, x.lit(static_cast<double>(n)));
  // Each product in Float64 costs 2^-29 ulp; beyond 2^20 of them the logarithm is the better way.
  if (magnitude > (1u << 20)) {
    const E sign = magnitude & 1 ? sign_of(x) : sign_of(x.lit(0));
    const E a = to_f64(abs(x));
    const E y = to_f32(exp64(log64_ends(a) * static_cast<double>(n)).exp());
    return with_sign(select(abs(x) == 1.0, x.lit(1), y), sign);
  }
  const E y = power(to_f64(x), magnitude);
  return to_f32(n > 0 ? y : 1.0 / y);
}

E pow_int(E x, E y) {
  const kernel::ExprNode exponent = y.node();
  const bool is_signed = is_signed_int(y.type());
  const int width = static_cast<int>(size_of(y.type())) * 8;
  if (exponent.prim == kernel::Prim::Const && (is_signed || exponent.imm >> 63 == 0)) {
    const int unused = is_signed ? 64 - width : 0;  // sign-extend what the constant stores zero-extended
    return pow_int(x, static_cast<std::int64_t>(exponent.imm << unused) >> unused);
  }
  // A factor counts by a mask, not by a selection: NVRTC copies what follows one on a condition that elements
  // share.
  const DType counted = width == 8    ? DType::Int8
                        : width == 16 ? DType::Int16
                        : width == 32 ? DType::Int32
                                      : DType::Int64;
  const E bits = bitcast(y, counted);
  E result = x.lit(1), square = x;
  for (int bit = 0; bit < width - is_signed; ++bit) {
    const E mask = bitcast((bits << bits.lit(width - 1 - bit)) >> bits.lit(width - 1), x.type());
    result = result ^ (((bit == 0 ? square : result * square) ^ result) & mask);
    square = square * square;
  }
  if (!is_signed) return result;
  const E odd = (y & y.lit(1)) != y.lit(0);
  return select(y < y.lit(0), inverse_power(x, odd), result);
}

E cbrt(E x) {
  const E a = to_f64(abs(x));
  if (is_f64(x)) {
    // One Newton step on e^(log(a) / 3).
    E y = call(MathFn::Exp, call(MathFn::Log, a) * 0x1.5555555555555p-2);
    y = y - (y - a / (y * y)) * 0x1.5555555555555p-2;
    const E special = (a == 0.0) | (a == kInf) | (a != a);
    return with_sign(select(special, a, y), sign_of(x));
  }
  const E y = to_f32(exp64(log64(a) * 0x1.5555555555555p-2).exp());
  const E special = (a == 0.0) | (a == kInf) | (a != a);
  return with_sign(select(special, abs(x), y), sign_of(x));
}

E rsqrt(E x) { return 1.0 / sqrt(x); }

E hypot(E x, E y) {
  if (is_f64(x)) return call(MathFn::Hypot, x, y);
  const E a = to_f64(x), b = to_f64(y);
  const E r = to_f32(sqrt(fma(a, a, b * b)));
  return select((abs(x) == kInf) | (abs(y) == kInf), x.lit(kInf), r);  // even beside a NaN
}

}  // namespace kiln::lower::math
