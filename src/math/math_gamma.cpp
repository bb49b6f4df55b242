// The logarithm of the gamma function and its derivative.
//
// Both compute in Float64 for every dtype: near the zeros on the negative axis (two between -n - 1 and -n for
// lgamma, one for digamma) large terms cancel, and what is left is to be right in Float32. Three ranges of
// y > 0 share one set of operations and differ by selections: (0, 1) steps up to (1, 2), [1, 3) is a
// polynomial that has the function's zeros as factors, and from 3 on there is Stirling's series with a
// minimax tail. Negative operands are reflected at 1/2 to y = 1 - x.
//
// Coefficients: Remez fits at 220 bits with mpmath, relative to the function, rounded one by one; the error
// after rounding is stated at each.
#include "math/math.h"
#include "math/math_core.h"

namespace kiln::lower::math {

using kernel::abs;
using kernel::call;
using kernel::MathFn;
using kernel::round_even;

namespace {

/// The parts of y > 0 that both functions use.
struct Ranges {
  E y;      // Float64, finite where the operand was Float32
  E small;  // y < 1
  E large;  // y >= 3
  E from1;  // y - 1 where not small, else y: y or y + 1 less 1, without rounding
};

Ranges ranges(E y) {
  const E small = y < 1.0;
  return {y, small, y >= 3.0, select(small, y, y - 1.0)};
}

/// 1 - x where x is negative, else x. A Float32 infinity becomes finite: log64 takes no other.
E reflected(E x) {
  const E wide = at_most(to_f64(x), is_f64(x) ? kInf : 0x1p200);
  return select(wide < 0.0, 1.0 - wide, wide);
}

/// The logarithm of a positive Float64 that came from a `like`.
E log_like(E like, E y) { return is_f64(like) ? call(MathFn::Log, y) : log64(y); }

/// sin(pi t) / (pi t) as a polynomial in t^2, |t| <= 1/2: 2^-54.4
E sinc(E t) {
  return horner(
      t * t, {1.0, -0x1.a51a6625307d2p+0, 0x1.9f9cb402bc3d9p-1, -0x1.86a8e47207f65p-3, 0x1.ac6805cb99666p-6,
              -0x1.3381695d86145p-9, 0x1.3746919dcff49p-13, -0x1.d3e20e4d1399bp-18, 0x1.06fe0f9c574c8p-22});
}

/// Where the functions have their poles: at 0, -1, -2, ...; -inf counts as one.
E at_pole(E x) { return (x <= 0.0) & (kernel::floor(x) == x); }

/// lgamma y, y > 0.
E lgamma_positive(E like, const Ranges& r) {
  // lgamma(2 + v) = v (v + 1) G(v), |v| <= 1: 2^-55.9
  const E v = r.from1 - 1.0;
  const E g = horner_pairs(
      v, v * v,
      {0x1.b0ee6072093cep-2,  -0x1.9ae6509ea109fp-4,  0x1.0e0c9df293525p-5,   -0x1.95ce223a9cb28p-7,
       0x1.47974853abf5cp-8,  -0x1.145121f9a460ap-9,  0x1.dfebcf8cd207ap-11,  -0x1.a96a400bd0fbbp-12,
       0x1.7ed73411882d4p-13, -0x1.5c86b750c0887p-14, 0x1.402f0230a20e5p-15,  -0x1.285035cf9a2a1p-16,
       0x1.13e56e7c4ece6p-17, -0x1.0232e2869ae00p-18, 0x1.e52f8ff3bf22dp-20,  -0x1.c9a7e696e0b29p-21,
       0x1.b37988c3085fdp-22, -0x1.9e74fb7f9d77dp-23, 0x1.779b11b6acb1ap-24,  -0x1.5fd3df125d594p-25,
       0x1.c3130b1bbeeabp-26, -0x1.ce217a14afaa9p-27, -0x1.a5fa6a70777cfp-31, 0x1.2316863268cc7p-30,
       0x1.52e99cfcf197cp-28, -0x1.781583801a03cp-29, -0x1.7e69a25c08957p-30, 0x1.ae5982ce24a50p-31,
       0x1.d2fb5cbe547f7p-32, -0x1.e5dafcb8723c2p-33});
  const E near = 0.0 - (1.0 - r.from1) * r.from1 * g;  // +0 at 1 and at 2
  const E log_y = log_like(like, r.y);
  // lgamma y = (y - 1/2) (log y - 1) + (log(2 pi) - 1) / 2 + S(1 / y^2) / y, y >= 3: 2^-58.1 of lgamma y
  const E inverse = 1.0 / r.y;
  const E s = horner(inverse * inverse, {0x1.5555555555554p-4, -0x1.6c16c16bec2c0p-9, 0x1.a01a006c2d4f1p-11,
                                         -0x1.3812d7ffa6834p-11, 0x1.b923c3ef8d799p-11,
                                         -0x1.f2ed459a17677p-10, 0x1.8aa88c89d8348p-8, -0x1.6b365290a3e79p-6,
                                         0x1.33696d9dc1a78p-4, -0x1.73b5572c7af53p-3, 0x1.bd211fe9cdf53p-3});
  const E far = fma(r.y - 0.5, log_y - 1.0, fma(inverse, s, s.lit(0x1.acfe390c97d69p-2)));
  return select(r.large, far, select(r.small, near - log_y, near));
}

/// digamma y, y > 0.
E digamma_positive(E like, const Ranges& r) {
  // digamma(2 + v) = (2 + v - root) D(v), |v| <= 1: 2^-54.1. The root is carried to 106 bits.
  const E v = r.from1 - 1.0;
  const E d = horner_pairs(
      v, v * v,
      {0x1.9213d46736ba4p-1,  -0x1.0aff270ca07a7p-2,  0x1.be76b26db7fc2p-4,   -0x1.95ec0c3ba93cdp-5,
       0x1.802924f9b1450p-6,  -0x1.7389aa80a81b8p-7,  0x1.6bdf5e1590798p-8,   -0x1.6714cfd9c0467p-9,
       0x1.64076134e730dp-10, -0x1.620f07d911599p-11, 0x1.60c65f777ea7dp-12,  -0x1.5feef7dd299dcp-13,
       0x1.5f65d7c94cae1p-14, -0x1.5f0a671261fd9p-15, 0x1.5e7f9f0068111p-16,  -0x1.5e3a5d36df682p-17,
       0x1.61a3841d155fep-18, -0x1.62902d5a5c0a8p-19, 0x1.44ea99d7b204ap-20,  -0x1.3e75395d8c050p-21,
       0x1.f1d718d70ad2ap-22, -0x1.079ae77e2de3dp-22, -0x1.f25d99d94e1e8p-25, 0x1.561c9944a77d3p-25,
       0x1.f3653a7589ca2p-24, -0x1.11dc0e226e402p-24, -0x1.351a3e74fa225p-25, 0x1.52d7f06ccc161p-26,
       0x1.5fe52a2404f5cp-27, -0x1.704e24fe2110cp-28});
  const E from_root = (r.from1 - (0x1.762d86356be3fp+0 - 1)) - 0x1.b86a722197829p-54;
  const E inverse = 1.0 / r.y;
  const E near = from_root * d;
  // digamma y = log y - 1 / (2 y) + R(1 / y^2) / y^2, y >= 3: 2^-58.9
  const E square = inverse * inverse;
  const E tail = horner(
      square, {-0x1.5555555555554p-4, 0x1.1111111102583p-7, -0x1.0410409bd8919p-8, 0x1.1110c1f4e0cd0p-8,
               -0x1.f06001534f719p-8, 0x1.581ef8ec6ff3ep-6, -0x1.489751c647759p-4, 0x1.781d3df42a602p-2,
               -0x1.abd8e9e886603p+0, 0x1.8dc599e24cc93p+2, -0x1.edffbb0e394ecp+3, 0x1.25f9592c1c41dp+4});
  const E far = log_like(like, r.y) + fma(square, tail, inverse * -0.5);
  return select(r.large, far, select(r.small, near - inverse, near));
}

E rounded_like(E like, E value) { return is_f64(like) ? value : to_f32(value); }

}  // namespace

E lgamma(E x) {
  // lgamma x = -log(|sin(pi x)| / pi) - lgamma(1 - x), with the sine of the distance to the next integer.
  const E wide = to_f64(x);
  const E positive = lgamma_positive(x, ranges(reflected(x)));
  const E t = abs(wide - round_even(wide));
  const E other = -log_like(x, t * sinc(t)) - positive;
  const E y = rounded_like(x, select(wide < 0.0, other, positive));
  return select(at_pole(x), x.lit(kInf), y);
}

E digamma(E x) {
  // digamma x = digamma(1 - x) - pi cot(pi x); the cosine is the sine of the distance to the next half.
  const E wide = to_f64(x);
  const E positive = digamma_positive(x, ranges(reflected(x)));
  const E t = wide - round_even(wide);
  const E u = 0.5 - abs(t);
  const E cotangent = u * sinc(u) * 0x1.921fb54442d18p+1 / (t * sinc(t));
  const E finite = rounded_like(x, select(wide < 0.0, positive - cotangent, positive));
  const E y = select(x == kInf, x, finite);
  const E pole = select(x == 0.0, with_sign(x.lit(kInf), sign_of(x) ^ sign_mask(x)), x.lit(kNaN));
  return select(at_pole(x), pole, y);
}

}  // namespace kiln::lower::math
