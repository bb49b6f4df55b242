// Trigonometric functions, right for every finite argument.
//
// Reduction: x / (2 pi) is summed over 29-bit pieces of 1 / (2 pi); a piece times a Float32 is exact in
// Float64, and whole turns are dropped after each piece, so no step loses a bit that matters whatever the
// exponent of x. No branch, no table: the price of huge arguments (about 25 Float64 operations) is paid by
// all.
#include "math/math.h"
#include "math/math_core.h"

namespace kiln::lower::math {

using kernel::bitcast;
using kernel::call;
using kernel::MathFn;
using kernel::round_even;
using kernel::sqrt;

namespace {

struct Quadrant {
  E r;      // Float64 in [-pi/4, pi/4], a hair beyond
  E index;  // Int32, low two bits count
};

Quadrant reduce(E x) {
  const E y = to_f64(x);
  // Inf becomes NaN in the first step (inf - inf).
  E turns = y * 0x1.45f306ep-3;
  turns = turns - round_even(turns);
  for (const double piece : {-0x1.b1bbeaep-34, 0x1.3f84ebp-63, -0x1.7056590p-93, -0x1.1f924ecp-121}) {
    turns = fma(y, y.lit(piece), turns);
    turns = turns - round_even(turns);
  }
  // The last pieces move less than 2^-20 of a turn: they come after the quadrant is taken off, where they are
  // added to a small number and keep their bits.
  const E quarter = round_even(turns * 4.0);
  E f = fma(turns, y.lit(4), -quarter);
  for (const double piece : {0x1.5993c44p-150, -0x1.bef806cp-180}) f = fma(y, y.lit(4 * piece), f);
  return {f * 0x1.921fb54442d18p+0, cast_in_range(quarter, DType::Int32)};
}

/// sin of (quadrant + 0) or (quadrant + 1) quarter turns: sin and cos differ by that only.
E sin_quadrant(const Quadrant& q, int quarter_turns) {
  const E r = to_f32(q.r);
  const E z = r * r;
  // (sin r - r) / r^3: 2^-28; (cos r - 1 + r^2 / 2) / r^4: 2^-33
  const E s = fma(horner(z, {-0x1.555546p-3, 0x1.11077ap-7, -0x1.9954a4p-13}), z * r, r);
  const E c =
      fma(fma(horner(z, {0x1.55554ap-5, -0x1.6c0c1ap-10, 0x1.99e0fap-16}), z, z.lit(-0.5)), z, z.lit(1));
  const DType i32 = DType::Int32;
  const E index = quarter_turns ? q.index + q.index.lit(quarter_turns) : q.index;
  const E odd = (index & index.lit(1)) != index.lit(0);
  const E flip = (index & index.lit(2)) << index.lit(30);
  return bitcast(bitcast(select(odd, c, s), i32) ^ flip, DType::Float32);
}

}  // namespace

E sin(E x) {
  if (is_f64(x)) return call(MathFn::Sin, x);
  const E y = sin_quadrant(reduce(x), 0);
  return select(x == 0.0, x, y);  // -0
}

E cos(E x) {
  if (is_f64(x)) return call(MathFn::Cos, x);
  return sin_quadrant(reduce(x), 1);
}

E tan(E x) {
  if (is_f64(x)) return call(MathFn::Tan, x);
  const Quadrant q = reduce(x);
  const E z = q.r * q.r;
  // (sin r / r - 1) / r^2: 2^-58; (cos r - 1) / r^2: 2^-64
  const E s = fma(horner(z, {-0x1.5555555555549p-3, 0x1.111111110f893p-7, -0x1.a01a019c124f3p-13,
                             0x1.71de3576f6be5p-19, -0x1.ae5e64dcc3e52p-26, 0x1.5d926e9a2f36bp-33}),
                  z * q.r, q.r);
  const E c = fma(horner(z, {-0.5, 0x1.555555555554cp-5, -0x1.6c16c16c15210p-10, 0x1.a01a019cbcdb8p-16,
                             -0x1.27e4f8104a2fcp-22, 0x1.1ee9ef58c5d55p-29, -0x1.8fb0068c05b53p-37}),
                  z, z.lit(1));
  const E odd = (q.index & q.index.lit(1)) != q.index.lit(0);
  const E y = to_f32(select(odd, -c, s) / select(odd, s, c));
  return select(x == 0.0, x, y);
}

E asin(E x) {
  if (is_f64(x)) return call(MathFn::Asin, x);
  const E y = to_f64(x);
  return to_f32(atan2_64(y, sqrt((1.0 - y) * (y + 1.0))));
}

E acos(E x) {
  if (is_f64(x)) return call(MathFn::Acos, x);
  const E y = to_f64(x);
  return to_f32(atan2_64(sqrt((1.0 - y) * (y + 1.0)), y));
}

E atan(E x) {
  if (is_f64(x)) return call(MathFn::Atan, x);
  return to_f32(atan2_64(to_f64(x), x.lit(DType::Float64, 1)));
}

E atan2(E y, E x) {
  if (is_f64(x)) return call(MathFn::Atan2, y, x);
  return to_f32(atan2_64(to_f64(y), to_f64(x)));
}

}  // namespace kiln::lower::math
