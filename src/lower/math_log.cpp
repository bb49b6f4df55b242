// Logarithms and the inverse hyperbolic functions.
#include "lower/math.h"
#include "lower/math_core.h"

namespace kiln::lower::math {

using kernel::abs;
using kernel::bitcast;
using kernel::call;
using kernel::cast;
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

E log(E x) {
  if (is_f64(x)) return call(MathFn::Log, x);
  const DType i32 = DType::Int32;
  const E tiny = x < 0x1p-126;
  const E normal = select(tiny, x * 0x1p23, x);
  const E bits = bitcast(normal, i32);
  // x = 2^n m with m in [2/3, 4/3)
  const E exponent = (bits - x.bits(i32, 0x3f2aaaab)) & x.bits(i32, 0xff800000u);
  const E m = bitcast(bits - exponent, DType::Float32);
  const E n = fma(cast(exponent, DType::Float32), x.lit(0x1p-23), select(tiny, x.lit(-23), x.lit(0)));
  const E f = m - 1.0;
  // (log(1 + f) - f + f^2 / 2) / f^3: 2^-27.6
  const E p = horner(f, {0x1.55550cp-2, -0x1.fffe60p-3, 0x1.99ce36p-3, -0x1.55b78ap-3, 0x1.1ef234p-3,
                         -0x1.f0475cp-4, 0x1.1df0d4p-3, -0x1.0e101cp-3});
  const E log_m = fma(fma(p, f, x.lit(-0.5)), f * f, f);
  return log_specials(x, fma(n, x.lit(kLn2), log_m));
}

E log2(E x) {
  if (is_f64(x)) return call(MathFn::Log2, x);
  return log_specials(x, to_f32(log64(to_f64(x)) * kLog2e));
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
