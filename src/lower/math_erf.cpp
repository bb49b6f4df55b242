// The error function and what is made of it.
#include "lower/math.h"
#include "lower/math_core.h"

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

E gelu(E x) {
  if (is_f64(x)) {
    const E y = at_least(x, -40.0);  // zero from -38.6 on; keeps -inf * 0 from being NaN
    return y * 0.5 * call(MathFn::Erfc, y * -0x1.6a09e667f3bcdp-1);
  }
  // max(x, 0) - a Q(a), Q(a) = erfc(a / sqrt 2) / 2: the tail is exact to its last bits where x < 0, and zero beyond
  // a = 15. Q(a) = exp(-a^2 / 2) t P(t), t = 1 / (1 + 0.297 a). A product of rounded factors would be 3 ulp off, so each
  // is carried with what its rounding lost: a name ending in _lo.
  const E a = at_most(abs(x), 15.0);
  // -a^2 / 2 = n ln2 + r. The head of ln2 has 15 bits: its products and their differences are exact.
  constexpr double kHead = 0x1.62e4p-1;
  const E half = a * -0.5;
  const E s = half * a, s_lo = fma(half, a, -s);
  const E n = whole_log2(s);
  const E r = fma(n, x.lit(-kHead), s) + fma(n, x.lit(kHead - kLn2), s_lo);
  const E v = r + exp_poly_rest(r);  // e^r - 1
  // t (1 + e) is 1 / (1 + 0.297 a), and w = t (1 + e) - w0 the variable of P(t) = c0 + w S(w). 2^-28.2; w0 is where
  // P is next to a float.
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
  return at_least(x, -0.0) - scale(tail, n);
}

E gelu_tanh(E x) {
  constexpr double kA = 0x1.9884533d43651p+0;  // 2 sqrt(2 / pi)
  constexpr double kB = kA * 0.044715;
  if (is_f64(x)) {
    const E y = at_least(x, -30.0);
    const E e = call(MathFn::Exp, -(y * fma(y * y, x.lit(kB), x.lit(kA))));
    return y / (e + 1.0);
  }
  // z = x (A + B x^2) reaches 110, where its rounding would cost 50 ulp: it is carried as z + z_lo. A's head
  // has 12 bits so that A - w below is exact.
  constexpr double kAHi = 0x1.988p+0, kBHi = static_cast<float>(kB);
  const E above = at_least(x, -10.9);  // the result is -0
  const E y = at_most(above, 9.0);     // the result is x
  const E y2 = y * y, y2_lo = fma(y, y, -y2);
  const E w = fma(y2, x.lit(kBHi), x.lit(kAHi));
  E w_lo = fma(y2, x.lit(kBHi), kAHi - w);
  w_lo = fma(y2_lo, x.lit(kBHi), w_lo + x.lit(kA - kAHi));
  w_lo = fma(y2, x.lit(kB - kBHi), w_lo);
  const E z = y * w;
  const E z_lo = fma(y, w_lo, fma(y, w, -z));
  return times_logistic(above, logistic(z, z_lo), 9.0);
}

}  // namespace kiln::lower::math
