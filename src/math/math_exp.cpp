// Exponentials and sigmoids. Each hot one is written out for the fewest instructions: e^x = 2^n e^r with n
// rounded by adding 1.5 * 2^23, and 2^n put on by Scale, or by one shift where it is a factor of a sum.
#include "math/expand.h"
#include "math/math.h"
#include "math/math_core.h"

namespace kiln::lower::math {

using kernel::abs;
using kernel::bitcast;
using kernel::call;
using kernel::MathFn;

E exp(E x) {
  if (is_f64(x)) return call(MathFn::Exp, x);
  const Reduced n = reduce_exp(within(x, -104, 89));
  return scale(exp_poly(n.r), n.whole);
}

E exp2(E x) {
  if (is_f64(x)) return call(MathFn::Exp2, x);
  const E y = within(x, -151, 129);
  const E whole = (y + 0x1.8p23) - 0x1.8p23;
  // 2^r on |r| <= 1/2: 2^-28.3
  const E p = horner(y - whole, {1.0, 0x1.62e430p-1, 0x1.ebfbdcp-3, 0x1.c6af76p-5, 0x1.3b2daep-7,
                                 0x1.5f0c4ap-10, 0x1.41ae46p-13});
  return scale(p, whole);
}

E expm1(E x) {
  if (is_f64(x)) return call(MathFn::Expm1, x);
  const E y = to_f32(exp64(to_f64(x)).minus_one());
  return select(x == 0.0, x, y);  // -0
}

E sigmoid(E x) {
  if (is_f64(x)) {
    // e^-|x| never overflows; 1 / (1 + e) and e / (1 + e) share the division's operands.
    const E e = call(MathFn::Exp, -abs(x));
    return select(x < 0.0, e, x.lit(1)) / (e + 1.0);
  }
  const Logistic s = logistic(within(x, -104, 20));
  return div_bounded(s.power, s.divisor);
}

E silu(E x) {
  if (is_f64(x)) {
    const E e = call(MathFn::Exp, -abs(x));
    // Below -800 the factor underflows; bounding x there keeps -inf * 0 from being NaN.
    return at_least(x, -800.0) * select(x < 0.0, e, x.lit(1)) / (e + 1.0);
  }
  const E y = at_least(x, -110.0);  // the result is -0 from -104 on
  return times_logistic(y, logistic(at_most(y, 60.0)), 60.0);
}

E tanh(E x) {
  if (is_f64(x)) return call(MathFn::Tanh, x);
  // tanh a = h / d with h = (1 - e) / 2, d = (1 + e) / 2, e = e^-2a = s (1 - 2 q), s = 2^n, q = (1 - e^-2r) /
  // 2, r = a + n ln2 / 2. e^-2a, not e^2a: s <= 1 shrinks the error of q. d is not 1 - h: that would double
  // the error of h near 1. One term of ln2 is enough: where n < 0, s damps the error of r.
  const E a = at_most(abs(x), 9.1);
  const Rounded n = round_scaled(a, -2 * kLog2e);
  const E r = fma(n.whole, x.lit(kLn2Hi / 2), a);
  // ((1 - e^-2r) / 2 - r) / r^2 on |r| <= ln2 / 4: 2^-26.1
  const E r2 = r * r;
  const E p = horner_pairs(r, r2, {-1.0, 0x1.5554b0p-1, -0x1.5554e0p-2, 0x1.12279ep-3, -0x1.6d568cp-5});
  const E q = fma(r2, p, r);
  const E h = fma(q, n.power, fma(n.power, x.lit(-0.5), x.lit(0.5)));
  const E d = fma(-q, n.power, fma(n.power, x.lit(0.5), x.lit(0.5)));
  return with_sign(div_bounded(h, d), sign_of(x));
}

E sinh(E x) {
  if (is_f64(x)) return call(MathFn::Sinh, x);
  const E em = exp64(to_f64(abs(x))).minus_one();
  return with_sign(to_f32((em + em / (em + 1.0)) * 0.5), sign_of(x));
}

E cosh(E x) {
  if (is_f64(x)) return call(MathFn::Cosh, x);
  const E e = exp64(to_f64(abs(x))).exp();
  return to_f32((e + 1.0 / e) * 0.5);
}

E softplus(E x) {
  if (is_f64(x)) return max(x, x.lit(0)) + call(MathFn::Log1p, call(MathFn::Exp, -abs(x)));
  const E y = to_f64(x);
  return to_f32(max(y, y.lit(0)) + log1p64(exp64(-abs(y)).exp()));
}

E mish(E x) {
  // tanh(log(1 + w)) = (w^2 + 2 w) / (w^2 + 2 w + 2), w = e^x
  const E y = to_f64(x);
  const E w = is_f64(x) ? call(MathFn::Exp, at_most(y, 40.0)) : exp64(at_most(y, 40.0)).exp();
  const E n = w * (w + 2.0);
  const E result = at_least(y, -800.0) * (n / (n + 2.0));
  return is_f64(x) ? result : to_f32(result);
}

E logaddexp(E x, E y) {
  const E a = to_f64(x), b = to_f64(y);
  const E hi = max(a, b);
  // Equal operands include equal infinities, whose difference is NaN.
  const E gap = select(a == b, a.lit(0), -abs(a - b));
  if (is_f64(x)) return hi + call(MathFn::Log1p, call(MathFn::Exp, gap));
  return to_f32(hi + log1p64(exp64(gap).exp()));
}

}  // namespace kiln::lower::math

namespace kiln::lower::math {

LogisticByShift logistic_by_shift(E z, E z_lo) {
  constexpr double kUp = 0x1p63, kMagic = 0x1.8p23 + 127 + 63;
  const E t = fma(z, z.lit(kLog2e), z.lit(kMagic)), n = t - kMagic;
  const E far = fma(n, z.lit(kLn2Hi), -z), r = fma(n, z.lit(kLn2Lo), z_lo ? far - z_lo : far);
  const E power = bitcast(bitcast(t, DType::Int32) << z.lit(DType::Int32, 23), DType::Float32);
  const E slope = fma(exp_slope(r, kUp), r, power);
  return {power, slope + kUp};
}

}  // namespace kiln::lower::math

namespace kiln::lower {

kernel::E expand_exp_in_range(kernel::E x) {
  if (math::is_f64(x)) return kernel::call(kernel::MathFn::Exp, x);
  const math::Reduced n = math::reduce_exp(x);
  return kernel::scale(math::exp_poly(n.r), n.whole);
}

kernel::E expand_sigmoid_by_shift(kernel::E x) {
  const math::LogisticByShift s = math::logistic_by_shift(math::within(x, -104, 20));
  return kernel::div_bounded(s.power, s.divisor);
}

kernel::E expand_silu_by_shift(kernel::E x) {
  // As math::times_logistic; beyond 20 the divisor rounds to 1.
  const kernel::E y = math::at_least(x, -110.0), z = math::at_most(y, 20.0);
  const math::LogisticByShift s = math::logistic_by_shift(z);
  const kernel::E q = kernel::div_bounded(z * s.power, s.divisor);
  return select(x.lit(20) < x, x, math::with_sign(q, math::sign_of(x)));
}

kernel::E expand_exp_by_shift(kernel::E x) {
  // 2^n in one shift, by a bias that is added with 1.5 * 2^23.
  const kernel::E t = fma(x, x.lit(math::kLog2e), x.lit(0x1.8p23 + 127)), n = t - (0x1.8p23 + 127);
  const kernel::E r = fma(n, x.lit(-math::kLn2Lo), fma(n, x.lit(-math::kLn2Hi), x));
  const kernel::E bits = bitcast(t, DType::Int32) << x.lit(DType::Int32, 23);
  return math::exp_poly(r) * bitcast(bits, DType::Float32);
}

kernel::E expand_exp_to_one(kernel::E x) {
  // 2^n by one shift, 2^64 and more times as large: what is subnormal is rounded once, by the last product.
  // An even number more than the other's 127 rounds ties as whole_log2 does.
  constexpr int kUp = 65;
  const kernel::E magic = x.lit(0x1.8p23 + 127 + kUp);
  const kernel::E y = math::at_least(x, -104), t = fma(y, x.lit(math::kLog2e), magic), n = t - magic;
  const kernel::E r = fma(n, x.lit(-math::kLn2Lo), fma(n, x.lit(-math::kLn2Hi), y));
  const kernel::E power = bitcast(bitcast(t, DType::Int32) << x.lit(DType::Int32, 23), DType::Float32);
  return math::exp_poly(r) * power * 0x1p-65;
}

kernel::E expand_exp_to_one_avx512(kernel::E x) {
  const math::Reduced n = math::reduce_exp(math::at_least(x, -104));
  return kernel::scale(math::exp_poly(n.r), n.whole);
}

/// 2^r on |r| <= 1/2: 2^-55.4.
static kernel::E exp_of_sum64(kernel::E x) {
  const kernel::E magic = x.lit(0x1.8p52 + 1023), t = fma(x, x.lit(math::kLog2e), magic);
  const kernel::E r = fma(x, x.lit(math::kLog2e), -(t - magic));
  const kernel::E power = bitcast(bitcast(t, DType::Int64) << x.lit(DType::Int64, 52), DType::Float64);
  return math::horner(
             r, {1.0, 0x1.62e42fefa39efp-1, 0x1.ebfbdff82c598p-3, 0x1.c6b08d704a0c2p-5, 0x1.3b2ab6fba1ddap-7,
                 0x1.5d87fe78a5276p-10, 0x1.430913096fd9fp-13, 0x1.ffcbfc670dcd4p-17, 0x1.62bfd47773353p-20,
                 0x1.b524fae627834p-24, 0x1.e6063f7217bc6p-28, 0x1.e9d3fe3952179p-32}) *
         power;
}

kernel::E expand_exp_of_sum(kernel::E x) {
  if (math::is_f64(x)) return exp_of_sum64(x);
  const math::Rounded n = math::round_scaled(x, math::kLog2e);
  const kernel::E r = fma(x, x.lit(math::kLog2e), -n.whole);
  // 2^r on |r| <= 1/2: 2^-23.6. What log2(e) lacks as a float counts for less, the smaller e^x is.
  return math::horner(
             r, {0x1.000002p+0, 0x1.62e428p-1, 0x1.ebf918p-3, 0x1.c6b6e4p-5, 0x1.3d0c52p-7, 0x1.5c08e6p-10}) *
         n.power;
}

}  // namespace kiln::lower
