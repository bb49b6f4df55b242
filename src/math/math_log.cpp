// Logarithms and the inverse hyperbolic functions.
#include "math/expand.h"
#include "math/math.h"
#include "math/math_core.h"

namespace kiln::lower::math {

using kernel::abs;
using kernel::call;
using kernel::MathFn;
using kernel::sqrt;

namespace {

/// The logarithm's values outside (0, inf): -inf at zero, NaN below, inf and NaN as they are.
E log_specials(E x, E result) {
  result = select(x < kInf, result, x);
  result = select(x == 0.0, x.lit(-kInf), result);
  return select(x < 0.0, x.lit(kNaN), result);
}

/// Outside (-1, inf): the same, shifted; -0 stays.
E log1p_specials(E x, E result) {
  result = select(x < kInf, result, x);
  result = select(x == -1.0, x.lit(-kInf), result);
  result = select(x == 0.0, x, result);
  return select(x < -1.0, x.lit(kNaN), result);
}

}  // namespace

namespace {

/// x = 2^n (1 + f), f in [-1/4, 1/2): log x = n ln2 + f + h f^2. The specials are in n (-inf, inf or NaN).
struct LogParts {
  E n, f, f2, h;
};

LogParts log_parts(E n, E mantissa) {
  const E f = mantissa - 1.0;
  // (log(1 + f) - f + f^2 / 2) / f^3: 2^-27.5
  const E f2 = f * f;
  const E p = horner_pairs(f, f2,
                           {0x1.5555a4p-2, -0x1.000044p-2, 0x1.99696ep-3, -0x1.54ef08p-3, 0x1.2886acp-3,
                            -0x1.0d9192p-3, 0x1.ac8af6p-4, -0x1.710fe8p-5});
  return {n, f, f2, fma(p, f, n.lit(-0.5))};
}
LogParts log_parts(E x) { return log_parts(exponent(x), mantissa(x)); }

E log_of(const LogParts& p) { return fma(p.n, p.n.lit(kLn2), fma(p.h, p.f2, p.f)); }

}  // namespace

E log(E x) {
  if (is_f64(x)) return call(MathFn::Log, x);
  return log_of(log_parts(x));
}

E log2(E x) {
  if (is_f64(x)) return call(MathFn::Log2, x);
  constexpr double kHi = static_cast<float>(kLog2e), kLo = kLog2e - kHi;
  const LogParts p = log_parts(x);
  return fma(p.f, x.lit(kHi), p.n) + fma(p.f, x.lit(kLo), p.h * p.f2 * kLog2e);
}

E log10(E x) {
  if (is_f64(x)) return call(MathFn::Log10, x);
  return log_specials(x, to_f32(log64(to_f64(x)) * 0x1.bcb7b1526e50ep-2));
}

E log1p(E x) {
  if (is_f64(x)) return call(MathFn::Log1p, x);
  return log1p_specials(x, to_f32(log1p64(to_f64(x))));
}

E asinh(E x) {
  if (is_f64(x)) return call(MathFn::Asinh, x);
  // log(a + sqrt(a^2 + 1)) = log1p(a + a^2 / (1 + sqrt(a^2 + 1)))
  const E a = to_f64(abs(x)), z = a * a;
  const E y = to_f32(log1p64(a + z / (sqrt(z + 1.0) + 1.0)));
  return with_sign(select(abs(x) < kInf, y, abs(x)), sign_of(x));
}

E acosh(E x) {
  if (is_f64(x)) return call(MathFn::Acosh, x);
  // log(x + sqrt(x^2 - 1)) = log1p(t + sqrt(t (t + 2))), t = x - 1
  const E t = to_f64(x) - 1.0;
  const E y = to_f32(log1p64(t + sqrt(t * (t + 2.0))));
  return select(x < 1.0, x.lit(kNaN), select(x < kInf, y, x));
}

E atanh(E x) {
  if (is_f64(x)) return call(MathFn::Atanh, x);
  const E a = to_f64(abs(x));
  E y = to_f32(log1p64((a + a) / (1.0 - a)) * 0.5);
  y = select(abs(x) == 1.0, x.lit(kInf), y);
  y = select(abs(x) > 1.0, x.lit(kNaN), y);
  return with_sign(select(x == x, y, x), sign_of(x));
}

}  // namespace kiln::lower::math

namespace kiln::lower {

kernel::E expand_log_from_one(kernel::E x) {
  // Exponent and mantissa by integers: 3/4 is the least mantissa.
  const kernel::E bits = bitcast(x, DType::Int32);
  const kernel::E above = (bits - x.bits(DType::Int32, 0x3f400000)) & x.bits(DType::Int32, 0xff800000u);
  const kernel::E mantissa = bitcast(bits - above, DType::Float32);
  const kernel::E log =
      math::log_of(math::log_parts(kernel::cast(above, DType::Float32) * 0x1p-23, mantissa));
  return fma(x, x.lit(0), log);  // NaN
}

}  // namespace kiln::lower
