// Each function reduces its argument, evaluates a polynomial and adds the great part of the result last, with
// what the roundings before it lost where that would show. Coefficients of the polynomials are minimax fits
// made at 160 bits; the relative error of the function is stated at each. Nothing here branches: lanes that a
// reduction does not reach are the caller's (in_range).
#include "codegen/llvm/vector_functions.h"

#include <initializer_list>

namespace kiln::codegen {
namespace {

using kernel::abs;
using kernel::bitcast;
using kernel::E;
using kernel::MathFn;
using kernel::max;
using kernel::min;
using kernel::sqrt;

constexpr double kRounder = 0x1.8p52;  // adding it rounds to an integer, found in the low bits
constexpr double kLog2e = 0x1.71547652b82fep+0;
// the head has 37 bits: n times it is exact
constexpr double kLn2Hi = 0x1.62e42fefap-1, kLn2Lo = 0x1.cf79abc9e3b3ap-40;
constexpr double kPiOver2 = 0x1.921fb54442d18p+0, kPiOver2Lo = 0x1.1a62633145c07p-54;

E horner(E x, std::initializer_list<double> c) {
  const double* k = c.end();
  E sum = x.lit(*--k);
  while (k != c.begin()) sum = fma(sum, x, x.lit(*--k));
  return sum;
}

/// The same by pairs, (c[0] + c[1] x) + (c[2] + c[3] x) x^2 + ..., in half the time where it is waited for.
E horner_pairs(E x, E x2, std::initializer_list<double> c) {
  const auto pair = [&](const double* k) {
    return k + 1 < c.end() ? fma(x, x.lit(k[1]), x.lit(*k)) : x.lit(*k);
  };
  const double* k = c.begin() + (c.size() - 1) / 2 * 2;
  E sum = pair(k);
  while (k != c.begin()) sum = fma(sum, x2, pair(k -= 2));
  return sum;
}

E integer(E x) { return bitcast(x, DType::Int64); }
E with_sign_of(E magnitude, E x) {
  const E sign = integer(x) & x.bits(DType::Int64, 0x8000000000000000u);
  return bitcast(integer(magnitude) | sign, DType::Float64);
}
/// 2^(n + b - 1023), where kRounder + b was added to a number to round it to n.
E power_of_two(E rounded) {
  return bitcast(integer(rounded) << rounded.lit(DType::Int64, 52), DType::Float64);
}

// ---- sin, cos, tan ----

/// x = n pi/2 + r + r_lo, |r| <= pi / 4 and a hair: Cody and Waite's reduction with three parts of pi/2.
/// Right for |x| < 2^30: beyond, n times the second part would lose bits of r.
constexpr double kReducible = 0x1p30;
struct Quarter {
  E r, r_lo;
  E index;  // n in the low bits, Int64
};
Quarter reduce(E x) {
  const E magic = x.lit(kRounder);
  const E t = fma(x, x.lit(0x1.45f306dc9c883p-1), magic);
  const E n = t - magic;
  const E first = fma(n, x.lit(-kPiOver2), x);  // exact
  const E second = n * kPiOver2Lo, second_lo = fma(n, x.lit(kPiOver2Lo), -second);
  const E r = first - second;
  const E lost = ((first - r) - second) - second_lo;
  return {r, fma(n, x.lit(0x1.f1976b7ed8fbcp-110), lost), integer(t)};
}

/// A value as a sum of two floats, the second small.
struct Sum {
  E hi, lo;
};
Sum two_sum(E great, E small) {
  const E hi = great + small;
  return {hi, small - (hi - great)};
}
struct SinCos {
  E sin, sin_rest, cos, cos_rest;  // sin r is sin + sin_rest, not added yet
};
SinCos sin_cos(const Quarter& q) {
  const E z = q.r * q.r, half = z * 0.5;
  // (sin r / r - 1) / r^2: 2^-58; (cos r - 1 + r^2 / 2) / r^4: 2^-64
  const E s = horner(z, {-0x1.5555555555549p-3, 0x1.111111110f893p-7, -0x1.a01a019c124f3p-13,
                         0x1.71de3576f6be5p-19, -0x1.ae5e64dcc3e52p-26, 0x1.5d926e9a2f36bp-33});
  const E c = horner(z, {0x1.555555555554cp-5, -0x1.6c16c16c15210p-10, 0x1.a01a019cbcdb8p-16,
                         -0x1.27e4f8104a2fcp-22, 0x1.1ee9ef58c5d55p-29, -0x1.8fb0068c05b53p-37});
  const E one_less = 1.0 - half;
  const E dropped = (1.0 - one_less) - half;
  return {q.r, fma(z * q.r, s, fma(-half, q.r_lo, q.r_lo)), one_less, fma(z * z, c, dropped - q.r * q.r_lo)};
}

E is_odd(E index) { return (index & index.lit(1)) != index.lit(0); }

E sin_after(E x, int quarter_turns) {
  const Quarter q = reduce(x);
  const SinCos f = sin_cos(q);
  const E index = q.index + q.index.lit(quarter_turns);
  const E odd = is_odd(index);
  const E y = select(odd, f.cos, f.sin) + select(odd, f.cos_rest, f.sin_rest);
  const E flip = (index & index.lit(2)) << index.lit(62);
  return bitcast(integer(y) ^ flip, DType::Float64);
}

/// Where sin x = tan x = x: subnormal numbers and -0 among them.
E or_tiny(E x, E y) { return select(abs(x) < 0x1p-27, x, y); }

E tan(E x) {
  const Quarter q = reduce(x);
  const SinCos f = sin_cos(q);
  const Sum s = two_sum(f.sin, f.sin_rest), c = two_sum(f.cos, f.cos_rest);
  const E odd = is_odd(q.index);
  const E num = select(odd, -c.hi, s.hi), num_lo = select(odd, -c.lo, s.lo);
  const E den = select(odd, s.hi, c.hi), den_lo = select(odd, s.lo, c.lo);
  const E inverse = 1.0 / den;
  const E y = num * inverse, minus = -y;
  const E rest = fma(minus, den, num) + fma(minus, den_lo, num_lo);
  return or_tiny(x, fma(rest, inverse, y));
}

// ---- inverses ----

E asin(E x) {
  // asin a = pi/2 - 2 asin(sqrt((1 - a) / 2)) above 1/2
  const E a = abs(x), upper = a > 0.5;
  const E z = select(upper, (1.0 - a) * 0.5, a * a);
  const E s = select(upper, sqrt(z), a);
  // (asin s - s) / s^3, z = s^2 <= 1/4: 2^-59.9
  const E p =
      horner(z, {0x1.5555555555577p-3, 0x1.333333332e106p-4, 0x1.6db6db7213f57p-5, 0x1.f1c71a9479abbp-6,
                 0x1.6e8bdeeb84d8dp-6, 0x1.1c49efad8c217p-6, 0x1.ca1f9beace117p-7, 0x1.75851fcc8ea8cp-7,
                 0x1.613ea3d2087b3p-7, 0x1.e5d8cfc4a6f4cp-9, 0x1.63a46e103b66ep-6, -0x1.5807db4ff36cbp-6,
                 0x1.0b49ba492d71fp-5});
  const E rest = s * z * p;
  const Sum great = two_sum(x.lit(kPiOver2), s * -2.0);
  const E above = great.hi + (great.lo + fma(rest, x.lit(-2), x.lit(kPiOver2Lo)));
  return with_sign_of(select(upper, above, a + rest), x);
}

/// base + atan((num + num_lo) / (den + den_lo)), |num| <= tan(pi / 8) den, base 0 or at least pi / 4.
E atan_of(const Sum& num, const Sum& den, const Sum& base) {
  const E inverse = 1.0 / den.hi;
  const E t = num.hi * inverse, minus = -t;
  const E t_lo = (fma(minus, den.hi, num.hi) + fma(minus, den.lo, num.lo)) * inverse;
  const E z = t * t;
  // (atan t - t) / t^3: 2^-59.4
  const E p =
      horner(z, {-0x1.555555555553dp-2, 0x1.99999999957cbp-3, -0x1.24924922aa45dp-3, 0x1.c71c70e50b7acp-4,
                 -0x1.745cf8c32945fp-4, 0x1.3b11179021620p-4, -0x1.10eba890f84c0p-4, 0x1.df0e7d1b1abd5p-5,
                 -0x1.9ccf71953f0ecp-5, 0x1.37cdff3cf4ad4p-5, -0x1.255afa03b8c83p-6});
  const Sum great = two_sum(base.hi, t);
  return great.hi + (great.lo + (fma(t * z, p, t_lo) + base.lo));
}

constexpr double kTanPiOver8 = 0x1.a827999fcef32p-2;

E atan(E x) {
  // atan a = base + atan t: base 0, pi/4 or pi/2, and t = a, (a - 1) / (a + 1) or -1 / a.
  E a = abs(x);
  a = select(x.lit(0x1p60) < a, x.lit(0x1p60), a);  // for an infinite a, whose 1 / a * a is none
  const E above = a > kTanPiOver8, far = a > 0x1.3504f333f9de6p+1, zero = x.lit(0), one = x.lit(1);
  const E less = a - one, more = a + one;
  // what the sum and the difference dropped, there only
  const E near = select(far, zero, select(above, one, zero));
  const Sum num = {select(above, select(far, x.lit(-1), less), a), near * (a - (less + one))};
  const Sum den = {select(above, select(far, a, more), one), near * (a - (more - one))};
  const Sum base = {select(above, select(far, x.lit(kPiOver2), x.lit(kPiOver2 / 2)), zero),
                    select(above, select(far, x.lit(kPiOver2Lo), x.lit(kPiOver2Lo / 2)), zero)};
  return with_sign_of(atan_of(num, den, base), x);
}

/// Where quotients of its operands and their remainders are normal numbers.
E atan2_holds(E y, E x) {
  const E hi = max(abs(x), abs(y)), lo = min(abs(x), abs(y));
  return (hi < 0x1p500) & ((lo > 0x1p-500) | ((lo == 0.0) & ((hi > 0x1p-500) | (hi == 0.0))));
}

E atan2(E y, E x) {
  // As in atan, of the lesser over the greater. Then pi/2 less that, then pi less that: the base is a number
  // of eighths of a turn, and t changes its sign with each.
  const E ax = abs(x), ay = abs(y), steep = ay > ax, zero = x.lit(0), one = x.lit(1);
  const E left = integer(x) < x.lit(DType::Int64, 0);
  const E lo = select(steep, ax, ay), hi = select(steep, ay, ax);
  const E middle = lo > hi * kTanPiOver8;
  const E less = lo - hi, more = lo + hi;
  const E num = select(middle, less, lo), den = select(middle, more, select(hi == zero, one, hi));
  const E num_lo = select(middle, lo - (less + hi), zero), den_lo = select(middle, lo - (more - hi), zero);
  E eighths = select(middle, one, zero);
  eighths = select(steep, 2.0 - eighths, eighths);
  eighths = select(left, 4.0 - eighths, eighths);
  const E base = eighths * (kPiOver2 / 2);
  const E dropped = fma(eighths, x.lit(kPiOver2 / 2), -base);
  const E flip = steep != left;
  const E v = atan_of({select(flip, -num, num), select(flip, -num_lo, num_lo)}, {den, den_lo},
                      {base, fma(eighths, x.lit(kPiOver2Lo / 2), dropped)});
  return with_sign_of(v, y);
}

// ---- exponentials and what undoes them ----

/// Taylor's series of (e^r - 1 - r) / r^2 to the degree that leaves 2^-57 on |r| <= ln2 / 2.
E exp_tail(E r) {
  double factorial = 6227020800;  // 13!
  E q = r.lit(1 / factorial);
  for (int k = 12; k >= 2; --k) q = fma(q, r, r.lit(1 / (factorial /= k + 1)));
  return q;
}

/// Below 1 ulp. 2^n comes in two factors, so that only the last product rounds a subnormal result or
/// overflows.
E exp(E x) {
  const E lo = x.lit(-746), hi = x.lit(710);
  E y = select(hi < x, hi, x);  // in this order NaN stays
  y = select(y < lo, lo, y);
  const E low = y < 0.0;
  const E magic = select(low, x.lit(kRounder + 1023 + 512), x.lit(kRounder + 1023 - 512));
  const E t = fma(y, x.lit(kLog2e), magic);
  const E n = t - magic;
  E r = fma(n, x.lit(-0x1.62e42fefa39efp-1), y);
  r = fma(n, x.lit(-0x1.abc9e3b39803fp-56), r);
  const E p = fma(r * r, exp_tail(r), r) + 1.0;
  return p * power_of_two(t) * select(low, x.lit(0x1p-512), x.lit(0x1p512));
}

/// e^x - 1 = 2 (h (r + r^2 q) + h - 1/2), h = 2^(n - 1).
E expm1(E x) {
  const E lo = x.lit(-40), hi = x.lit(710);
  E y = select(hi < x, hi, x);
  y = select(y < lo, lo, y);
  const E magic = x.lit(kRounder + 1022);
  const E t = fma(y, x.lit(kLog2e), magic);
  const E n = t - magic, h = power_of_two(t);
  const E r = fma(n, x.lit(-kLn2Lo), fma(n, x.lit(-kLn2Hi), y));
  const E result = fma(h, r * r * exp_tail(r), fma(h, r, h - 0.5)) * 2.0;
  return select(abs(x) < 0x1p-54, x, result);
}

E sin(E x) { return or_tiny(x, sin_after(x, 0)); }
E cos(E x) { return sin_after(x, 1); }

/// erf a = 1 - e^-u, u = -log(erfc a) = a + a P(a): one polynomial serves [0, 5.93] and small a keep their
/// accuracy.
E erf(E x) {
  E a = abs(x);
  a = select(x.lit(5.93) < a, x.lit(5.93), a);
  // -log(erfc a) / a - 1, weighted by its effect on erf: 2^-60.3
  const E p = horner_pairs(
      a, a * a,
      {0x1.06eba8214db69p-3,   0x1.45f306dc9c885p-1,   0x1.a4f4e2a1b466ep-4,   -0x1.39668594d54a4p-6,
       -0x1.b6b684fa54471p-13, 0x1.bca67462fe48cp-10,  -0x1.3564fb295d049p-11, 0x1.b2017c767506fp-16,
       0x1.0e9eaefb72743p-14,  -0x1.f3c441f34c2b9p-16, 0x1.d82c42009e2adp-19,  0x1.68703900f814fp-19,
       -0x1.a8437af75d17dp-20, 0x1.a790e095b6c8cp-23,  0x1.f708ff2f1b895p-23,  -0x1.a63985c2af385p-23,
       0x1.863520dcb744dp-24,  -0x1.03f02c9e6ff1fp-25, 0x1.0ac3cb7a2f278p-27,  -0x1.adaacdfb998c7p-30,
       0x1.0edd67caae8a2p-32,  -0x1.06bc38a4df5e8p-35, 0x1.7b1be6c43417bp-39,  -0x1.7f5656e2db276p-43,
       0x1.e4aec618c0043p-48,  -0x1.2034c4d442cf8p-53});
  const E u = fma(a, p, a);
  const E t = fma(u, x.lit(-kLog2e), x.lit(kRounder + 1023));
  const E n = t - (kRounder + 1023), power = power_of_two(t);
  const E r = fma(n, x.lit(-kLn2Lo), fma(n, x.lit(-kLn2Hi), -u));
  const E minus = -power;
  return with_sign_of(fma(minus, r * r * exp_tail(r), fma(minus, r, 1.0 - power)), x);
}

/// log(1 + x) = n ln2 + log m + what rounding 1 + x lost, m in [sqrt(1/2), sqrt(2)): log m = f - f^2 / 2 + s
/// (f^2 / 2 + R), f = m - 1, s = f / (2 + f), as in Sun's fdlibm.
E log1p(E x) {
  const DType u64 = DType::UInt64;
  const E w = x + 1.0;
  const E lost = select(x < 1.0, x - (w - 1.0), 1.0 - (w - x));
  const E from_root = bitcast(w, u64) - x.bits(u64, 0x3fe6a09e667f3bcdu);
  const E power = from_root & x.bits(u64, 0xfff0000000000000u);
  const E m = bitcast(bitcast(w, u64) - power, DType::Float64);
  const E biased = (from_root + x.bits(u64, std::uint64_t{1024} << 52)) >> x.lit(u64, 52);
  const E n = bitcast(biased | x.bits(u64, 0x4330000000000000u), DType::Float64) - (0x1p52 + 1024);
  const E f = m - 1.0, s = f / (f + 2.0), z = s * s, half = f * f * 0.5;
  // (log((1 + s) / (1 - s)) - 2 s) / s^3: 2^-58.4
  const E r =
      z * horner(z, {0x1.555555555558fp-1, 0x1.9999999980ad3p-2, 0x1.249249415e7bbp-2, 0x1.c71c526b4400cp-3,
                     0x1.74662e0b93aaap-3, 0x1.39a32c941f3ddp-3, 0x1.2ef8eea67b984p-3});
  // lost / w, where 1 / m may be 1 - f + f^2: the less f is, the more of it shows.
  const E down = bitcast(x.bits(u64, 0x3ff0000000000000u) - power, DType::Float64);
  const E rest = lost * down * fma(f, f - 1.0, x.lit(1));
  const E tail = fma(s, half + r, fma(n, x.lit(kLn2Lo), rest));
  return select(abs(x) < 0x1p-54, x, n * kLn2Hi - ((half - tail) - f));
}

struct Row {
  MathFn fn;
  VectorFunction (*make)(E x, E y);
};
VectorFunction reduced(E value, E x) { return {value, abs(x) < kReducible}; }
constexpr Row kRows[] = {
    {MathFn::Sin, [](E x, E) { return reduced(sin(x), x); }},
    {MathFn::Cos, [](E x, E) { return reduced(cos(x), x); }},
    {MathFn::Tan, [](E x, E) { return reduced(tan(x), x); }},
    {MathFn::Asin, [](E x, E) -> VectorFunction { return {asin(x), {}}; }},
    {MathFn::Atan, [](E x, E) -> VectorFunction { return {atan(x), {}}; }},
    {MathFn::Atan2, [](E y, E x) -> VectorFunction { return {atan2(y, x), atan2_holds(y, x)}; }},
    {MathFn::Log1p, [](E x, E) -> VectorFunction { return {log1p(x), (x > -1.0) & (x < 0x1p1000)}; }},
    {MathFn::Exp, [](E x, E) -> VectorFunction { return {exp(x), {}}; }},
    {MathFn::Erf, [](E x, E) -> VectorFunction { return {erf(x), {}}; }},
    {MathFn::Expm1, [](E x, E) -> VectorFunction { return {expm1(x), {}}; }},
};

}  // namespace

VectorFunction vector_function(MathFn fn, E x, E y) {
  for (const Row& row : kRows)
    if (row.fn == fn) return row.make(x, y);
  return {};
}

}  // namespace kiln::codegen
