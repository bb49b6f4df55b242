// Range reductions and Float64 cores. Coefficients are minimax fits (relative error of the function as
// computed), made with a Remez/Lawson fit at 160 bits and rounded one by one; the error is stated at each.
#include "math/math_core.h"

namespace kiln::lower::math {

using kernel::abs;
using kernel::bitcast;

constexpr double kRounder = 0x1.8p23;  // adding it rounds to an integer

Rounded round_scaled(E x, double factor) {
  const E magic = x.lit(kRounder + 127);
  const E t = fma(x, x.lit(factor), magic);
  const E power = bitcast(bitcast(t, DType::Int32) << x.lit(DType::Int32, 23), DType::Float32);
  return {t - magic, power};
}

namespace {
/// (e^r - 1 - r) / r^2
constexpr auto kExpTail = {0x1.fffffcp-2, 0x1.55548cp-3, 0x1.555858p-5, 0x1.123deep-7, 0x1.6ac8c8p-10};
/// (e^r - 1) / r
E exp_slope(E r) { return fma(horner(r, kExpTail), r, r.lit(1)); }
}  // namespace

E whole_log2(E x) {
  const E magic = x.lit(kRounder);
  return fma(x, x.lit(kLog2e), magic) - magic;
}

E exp_slope(E r, double factor) {
  const double* c = kExpTail.begin();
  const auto lit = [&](int k) { return r.lit(c[k] * factor); };
  const E r2 = r * r;
  const E tail = fma(fma(lit(4), r2, fma(r, lit(3), lit(2))), r2, fma(r, lit(1), lit(0)));
  return fma(tail, r, r.lit(factor));
}

E exp_poly(E r) { return fma(exp_slope(r), r, r.lit(1)); }
E exp_poly_rest(E r) { return horner(r, kExpTail) * r * r; }

Reduced reduce_exp(E x) {
  const E n = whole_log2(x);
  return {n, fma(n, x.lit(-kLn2Lo), fma(n, x.lit(-kLn2Hi), x))};
}

Logistic logistic(E z, E z_lo) {
  // z = n ln2 - r: 1 / (1 + 2^-n e^r) = 2^n / (2^n + e^r), with e^r only rounded in the sum. The 1 of e^r
  // comes last: beside it a power of 2^-24 would be lost.
  const E n = whole_log2(z);
  E r = fma(n, z.lit(kLn2Hi), -z);
  r = fma(n, z.lit(kLn2Lo), z_lo ? r - z_lo : r);
  const E power = scale(z.lit(1), n);
  const E slope = fma(horner_pairs(r, r * r, kExpTail), r, r.lit(1));
  return {n, power, fma(slope, r, power) + 1.0};
}

E times_logistic(E x, const Logistic& s, double limit) {
  // One division rounds less than a reciprocal and a product, but takes no infinity and may turn -0.
  const E y = scale(div_bounded(at_most(x, limit), s.divisor), s.whole);
  return select(x.lit(limit) < x, x, with_sign(y, sign_of(x)));
}

Exp64 exp64(E x) {
  x = at_least(at_most(x, 700.0), -700.0);
  const E magic = x.lit(0x1.8p52 + 1023);
  const E t = fma(x, x.lit(kLog2e), magic);
  const E n = t - magic;
  E r = fma(n, x.lit(-kLn2), x);
  r = fma(n, x.lit(-0x1.abc9e3b39803fp-56), r);
  // (e^r - 1 - r) / r^2 on |r| <= ln2 / 2: 2^-49.3
  const E q = horner(r, {0x1.0000000000006p-1, 0x1.55555555521d9p-3, 0x1.555555555152dp-5,
                         0x1.1111112152136p-7, 0x1.6c16c18239608p-10, 0x1.a0199b9644765p-13,
                         0x1.a0199d9936f51p-16, 0x1.72dab16459760p-19, 0x1.28ab74881913dp-22});
  const E scale = bitcast(bitcast(t, DType::Int64) << x.lit(DType::Int64, 52), DType::Float64);
  return {fma(r * r, q, r), scale};
}

E log64(E x) {
  // x = 2^n m with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s), s = (m - 1) / (m + 1)
  const DType u64 = DType::UInt64;
  const E from_root = bitcast(x, u64) - x.bits(u64, 0x3fe6a09e667f3bcdu);
  const E m = bitcast(bitcast(x, u64) - (from_root & x.bits(u64, 0xfff0000000000000u)), DType::Float64);
  // The exponent as a float, without a 64-bit conversion (AVX2 has none): biased into the low bits of 2^52.
  const E biased = (from_root + x.bits(u64, std::uint64_t{1024} << 52)) >> x.lit(u64, 52);
  const E n = bitcast(biased | x.bits(u64, 0x4330000000000000u), DType::Float64) - (0x1p52 + 1024);
  const E f = m - 1.0;
  const E s = f / (m + 1.0);
  const E z = s * s;
  // (log((1 + s) / (1 - s)) - 2 s) / s^3: 2^-58.4
  const E p =
      horner(z, {0x1.555555555558fp-1, 0x1.9999999980ad3p-2, 0x1.249249415e7bbp-2, 0x1.c71c526b4400cp-3,
                 0x1.74662e0b93aaap-3, 0x1.39a32c941f3ddp-3, 0x1.2ef8eea67b984p-3});
  return fma(n, x.lit(kLn2), fma(s * z, p, s + s));
}

E log1p64(E u) {
  const E w = u + 1.0;
  // What rounding w lost, to first order; beyond w = 2 it is below the error anyway and must not be added
  // unscaled.
  const E lost = select(u < 1.0, u - (w - 1.0), u.lit(0));
  return log64(w) + lost;
}

E atan2_64(E y, E x) {
  // Infinities become 2^500: their ratio is 1, and any Float32 over it rounds to zero.
  const E ay = at_most(abs(y), 0x1p500), ax = at_most(abs(x), 0x1p500);
  const E lo = min(ay, ax), hi = max(ay, ax);
  const E steep = lo > hi * 0x1.a827999fcef32p-2;  // tan(pi / 8)
  const E num = select(steep, lo - hi, lo);
  const E den = select(steep, lo + hi, hi);
  const E t = num / select(den == 0.0, den.lit(1), den);
  const E z = t * t;
  // (atan(t) - t) / t^3 on |t| <= tan(pi / 8): 2^-54.7
  const E p =
      horner(z, {-0x1.5555555555327p-2, 0x1.999999994abe2p-3, -0x1.24924905cdd98p-3, 0x1.c71c65e2ff9dcp-4,
                 -0x1.745bc478fddccp-4, 0x1.3afc41c0c9605p-4, -0x1.10056fd72af6ap-4, 0x1.d2561de22698bp-5,
                 -0x1.6517a5c8d9d00p-5, 0x1.5c46ec0fad5cdp-6});
  E r = fma(t * z, p, t);
  r = select(steep, r + 0x1.921fb54442d18p-1, r);
  r = select(ay > ax, 0x1.921fb54442d18p+0 - r, r);
  r = select(sign_of(x) != x.bits(DType::UInt64, 0), 0x1.921fb54442d18p+1 - r, r);
  return with_sign(r, sign_of(y));
}

}  // namespace kiln::lower::math
