// The error function and what is made of it.
#include "lower/math.h"
#include "lower/math_core.h"

namespace kiln::lower::math {

using kernel::abs;
using kernel::call;
using kernel::MathFn;

// The upper tail Q(a) = erfc(a / sqrt 2) / 2 is exp(-a^2 / 2) t P(t) with t = 1 / (1 + 0.3 a), for 0 <= a
// <= 15.
namespace {
constexpr double kTailScale = 0x1.333334p-2;
}

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
  const E a = at_most(to_f64(abs(x)), 10.5);
  const E t = 1.0 / fma(a, a.lit(kTailScale * 0x1.6a09e667f3bcdp+0), a.lit(1));
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
  // max(x, 0) - a Q(a): the tail is exact to its last bits where x < 0, and zero beyond a = 15.
  const E a = at_most(abs(x), 15.0);
  // e^-(a^2 / 2) with the rounding error of a^2 carried along.
  const E half = a * -0.5;
  const E s = half * a;
  const Reduced n = reduce_exp(s);
  const E e = exp_poly_minus_one(n.r + fma(half, a, -s));
  // t P(w), w = t - 1/2 computed as 1/2 - 0.3 a t: for small a the rounding of t then matters once, not three
  // times, and no term cancels another. 2^-27.8
  const E scaled = a * kTailScale;
  const E t = div_bounded(x.lit(1), scaled + 1.0);
  const E p = horner(fma(-scaled, t, x.lit(0.5)),
                     {0x1.c69888p-3, 0x1.510f0cp-2, 0x1.62821ep-2, 0x1.c6d3c4p-3, 0x1.dba808p-6,
                      -0x1.3dade6p-4, -0x1.281282p-5, 0x1.24b04cp-5, 0x1.2b503cp-6, -0x1.363ca6p-6});
  const E a_tail = scale(a * t * fma(p, e, p), n.whole);  // Q = t P (1 + e)
  return at_least(x, -0.0) - a_tail;
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
  return times_logistic(above, logistic(z, z_lo));
}

}  // namespace kiln::lower::math
