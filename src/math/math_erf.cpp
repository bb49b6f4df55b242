// The error function and what is made of it.
#include "math/expand.h"
#include "math/math.h"
#include "math/math_core.h"

namespace kiln::lower::math {

using kernel::abs;
using kernel::call;
using kernel::MathFn;

E erf(E x) {
  if (is_f64(x)) return call(MathFn::Erf, x);
  // erf a = 1 - e^-u with u = -log(erfc a) = a + a P(a), so that one polynomial serves [0, 3.95] and small a
  // keep their relative accuracy. e^-u - 1 as in tanh, with s = 2^n, n <= 0.
  const E a = at_most(abs(x), 3.95);
  // -log(erfc a) / a - 1, weighted by its effect on erf: 2^-27.8
  const E p = horner_pairs(a, a * a,
                           {0x1.06eba8p-3, 0x1.45f300p-1, 0x1.a4f8c2p-4, -0x1.39b798p-6, -0x1.63b3c8p-13,
                            0x1.b74cc8p-10, -0x1.4e32a0p-11, 0x1.f29ec8p-14, -0x1.3b1384p-17});
  const E u = fma(a, p, a);
  const Rounded n = round_scaled(u, -kLog2e);
  const E r = fma(n.whole, x.lit(kLn2Hi), u);  // e^-u = 2^n e^-r
  // 1 - e^-r = r - r^2 q(-r): 2^-26.1
  const E r2 = r * r;
  const E q = horner_pairs(r, r2, {-0x1p-1, 0x1.5554b0p-3, -0x1.5554e0p-5, 0x1.12279ep-7, -0x1.6d568cp-10});
  const E one_minus = fma(r2, q, r);
  return with_sign(fma(n.power, one_minus, 1.0 - n.power), sign_of(x));
}

E erfc(E x) {
  if (is_f64(x)) return call(MathFn::Erfc, x);
  // erfc a = exp(-a^2) t P(t), t = 1 / (1 + 0.3 sqrt(2) a)
  const E a = at_most(to_f64(abs(x)), 10.5);
  const E t = 1.0 / fma(a, a.lit(0x1.333334p-2 * 0x1.6a09e667f3bcdp+0), a.lit(1));
  // 2^-31.8
  const E tail = t * horner(t, {0x1.ea38edee2be62p-4, 0x1.ea2c6109052b8p-4, 0x1.be80738dbef27p-4,
                                0x1.6498719ce9c89p-4, 0x1.d362ec08c1604p-5, 0x1.3f03fdeb3b092p-5,
                                -0x1.bbb0b2e2baadfp-5, 0x1.f99deeab50416p-4, -0x1.d1e0b46288fa8p-3,
                                0x1.8814154d94d68p-3, -0x1.3b8a3d5f41d86p-4, 0x1.9561e9e2d0ca9p-7});
  const E y = tail * exp64(-(a * a)).exp() * 2.0;
  return to_f32(select(x < 0.0, 2.0 - y, y));
}

namespace {

/// Wichura, "Algorithm AS 241: the percentage points of the normal distribution", 1988: its rational
/// functions, 2^-53.
E ndtri64(E p) {
  const E q = p - 0.5;
  const E r = 0.180625 - q * q;
  const E middle = q *
                   horner(r, {3.3871328727963666080e0, 1.3314166789178437745e+2, 1.9715909503065514427e+3,
                              1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                              3.3430575583588128105e+4, 2.5090809287301226727e+3}) /
                   horner(r, {1.0, 4.2313330701600911252e+1, 6.8718700749205790830e+2,
                              5.3941960214247511077e+3, 2.1213794301586595867e+4, 3.9307895800092710610e+4,
                              2.8729085735721942674e+4, 5.2264952788528545610e+3});
  const E t = select(q < 0.0, p, 1.0 - p);
  const E s = kernel::sqrt(-call(MathFn::Log, t));
  const E near = s - 1.6, far = s - 5.0;
  const E tail_near =
      horner(near, {1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
                    3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
                    2.27238449892691845833e-2, 7.74545014278341407640e-4}) /
      horner(near, {1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
                    1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
                    1.05075007164441684324e-9});
  const E tail_far =
      horner(far, {6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
                   2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                   2.71155556874348757815e-5, 2.01033439929228813265e-7}) /
      horner(far, {1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
                   7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
                   2.04426310338993978564e-15});
  E tail = select(s > 5.0, tail_far, tail_near);
  tail = select(t == 0.0, t.lit(kInf), tail);
  return select(abs(q) <= 0.425, middle, select(q < 0.0, -tail, tail));
}

}  // namespace

E ndtri(E p) {
  if (is_f64(p)) return ndtri64(p);
  // With t the lesser of p and 1 - p and w = -log(4t(1 - t)): in the middle (2p - 1) P(w), in the tail a
  // rational function of s = sqrt(-log t), where -log t = w + log 4 + log(1 - t).
  const E upper = p > 0.5;
  const E t = select(upper, 1.0 - p, p);
  const E w = -log(t * (1.0 - t) * 4.0);
  // 2^-25.9 on 0 <= w <= 4
  const E middle = fma(p, p.lit(2), p.lit(-1)) *
                   horner_pairs(w, w * w,
                                {0x1.40d932p+0, 0x1.4ffe16p-2, 0x1.0b8366p-6, -0x1.af039ep-9, -0x1.9f4ff4p-13,
                                 0x1.417c46p-14, -0x1.dfd3e6p-22, -0x1.4927fap-20, 0x1.9ad13ep-24});
  const E s = kernel::sqrt(w + fma(fma(t, t.lit(-0.5), t.lit(-1)), t, t.lit(0x1.62e430p+0)));
  // 2^-24.8 on 2.3 <= s <= 10.2
  const E over = horner(s, {-0x1.4136b6p+1, -0x1.9e1b64p-3, 0x1.9372c4p+1, 0x1.be15a6p-1, -0x1.7e93c6p-16});
  const E under = horner(s, {1.0, 0x1.20d08cp+1, 0x1.3afc8ep-1});
  const E tail = select(t == 0.0, t.lit(kInf), div_bounded(over, under));
  return select(w < 4.0, middle, select(upper, tail, -tail));
}

namespace {

/// Float32's. `by_shift`: 2^n by one shift, 2^65 and more times as large, so that a subnormal tail is rounded
/// once, by the last product.
E gelu32(E x, bool by_shift) {
  // max(x, 0) - a Q(a), Q(a) = erfc(a / sqrt 2) / 2: the tail is exact to its last bits where x < 0, and zero
  // beyond a = 15. Q(a) = exp(-a^2 / 2) t P(t), t = 1 / (1 + 0.297 a). A product of rounded factors would be
  // 3 ulp off, so each is carried with what its rounding lost: a name ending in _lo.
  const E a = at_most(abs(x), 15.0);
  // -a^2 / 2 = n ln2 + r. The head of ln2 has 15 bits: its products and their differences are exact.
  constexpr double kHead = 0x1.62e4p-1;
  const E half = a * -0.5;
  const E s = half * a, s_lo = fma(half, a, -s);
  constexpr int kUp = 65;  // an even number more than whole_log2's 127 rounds ties as it does
  const E magic = x.lit(0x1.8p23 + 127 + kUp), shifted = fma(s, x.lit(kLog2e), magic);
  const E n = by_shift ? shifted - magic : whole_log2(s);
  const E r = fma(n, x.lit(-kHead), s) + fma(n, x.lit(kHead - kLn2), s_lo);
  const E v = r + exp_poly_rest(r);  // e^r - 1
  // t (1 + e) is 1 / (1 + 0.297 a), and w = t (1 + e) - w0 the variable of P(t) = c0 + w S(w). 2^-28.2; w0 is
  // where P is next to a float.
  const E scale_a = x.lit(0x1.3p-2), one = x.lit(1), c0 = x.lit(0x1.dafb42p-3);
  const E d = fma(a, scale_a, one), d_lo = fma(a, scale_a, one - d);
  const E t = div_bounded(one, d), minus_t = -t;
  const E e = fma(d_lo, minus_t, fma(d, minus_t, one));
  const E w = fma(t, e, t - 0x1.12p-1);
  const E slope = horner(w, {0x1.69d96cp-2, 0x1.7f20b2p-2, 0x1.e36b44p-3, 0x1.a1fcaap-6, -0x1.52a5d8p-4,
                             -0x1.0db416p-5, 0x1.3a43bep-5, 0x1.0bd5bep-6, -0x1.4ef31ap-6});
  const E p = fma(slope, w, c0), p_lo = fma(slope, w, c0 - p);
  // a e^r, that over 1 + 0.297 a, and that times P.
  const E b = fma(a, v, a), b_lo = fma(a, v, a - b);
  const E q = b * t, q_lo = fma(b_lo, t, fma(q, e, fma(b, t, -q)));
  const E tail = fma(q, p, fma(q, p_lo, q_lo * p));
  const E power =
      kernel::bitcast(kernel::bitcast(shifted, DType::Int32) << x.lit(DType::Int32, 23), DType::Float32);
  return at_least(x, -0.0) - (by_shift ? tail * power * 0x1p-65 : scale(tail, n));
}

constexpr double kA = 0x1.9884533d43651p+0;  // 2 sqrt(2 / pi)
constexpr double kB = kA * 0.044715;

/// Float32's.
E gelu_tanh32(E x, bool by_shift) {
  // z = x (A + B x^2) reaches 110, where its rounding would cost 50 ulp: it is carried as z + z_lo. A's head
  // has 12 bits so that A - w below is exact.
  constexpr double kAHi = 0x1.988p+0, kBHi = static_cast<float>(kB);
  constexpr double kLow = -10.9;             // the result is -0 from there on, …
  const double high = by_shift ? 5.5 : 9.0;  // … and x
  const E above = at_least(x, kLow), y = by_shift ? above : at_most(above, high);
  const E y2 = y * y, y2_lo = fma(y, y, -y2);
  const E w = fma(y2, x.lit(kBHi), x.lit(kAHi));
  E w_lo = fma(y2, x.lit(kBHi), kAHi - w);
  w_lo = fma(y2_lo, x.lit(kBHi), w_lo + x.lit(kA - kAHi));
  w_lo = fma(y2, x.lit(kB - kBHi), w_lo);
  const E z = y * w;
  const E z_lo = fma(y, w_lo, fma(y, w, -z));
  if (!by_shift) return times_logistic(above, logistic(z, z_lo), high);
  const LogisticByShift s = logistic_by_shift(z, z_lo);
  const E q = div_bounded(y * s.power, s.divisor);  // (anything beyond `high`)
  return select(x.lit(high) < x, x, with_sign(q, sign_of(x)));
}

}  // namespace

E gelu(E x) {
  if (!is_f64(x)) return gelu32(x, false);
  const E y = at_least(x, -40.0);  // zero from -38.6 on; keeps -inf * 0 from being NaN
  return y * 0.5 * call(MathFn::Erfc, y * -0x1.6a09e667f3bcdp-1);
}

E gelu_tanh(E x) {
  if (!is_f64(x)) return gelu_tanh32(x, false);
  const E y = at_least(x, -30.0);
  const E e = call(MathFn::Exp, -(y * fma(y * y, x.lit(kB), x.lit(kA))));
  return y / (e + 1.0);
}

}  // namespace kiln::lower::math

namespace kiln::lower {

kernel::E expand_gelu_by_shift(kernel::E x) { return math::gelu32(x, true); }
kernel::E expand_gelu_tanh_by_shift(kernel::E x) { return math::gelu_tanh32(x, true); }

}  // namespace kiln::lower
