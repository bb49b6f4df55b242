// LLVM takes vectors apart for what no instruction does. Here integer division becomes floating point
// arithmetic with the same result. Each rule ends: its result holds no integer division.
#include "codegen/llvm/legalize_vector.h"

#include <limits>

namespace kiln::codegen {
namespace {

using kernel::bitcast;
using kernel::cast;
using kernel::cast_in_range;
using kernel::E;
using kernel::ExprNode;
using kernel::ExprPool;
using kernel::Prim;

/// 0.5 with the sign of a float.
E signed_half(E x) {
  const DType bits = size_of(x.type()) == 8 ? DType::Int64 : DType::Int32;
  const E sign = bitcast(x, bits) & bitcast(x.lit(-0.0), bits);
  return bitcast(sign | bitcast(x.lit(0.5), bits), x.type());
}

/// Quotient or remainder of integers with w <= 32 bits, in a float of p > w + 1 digits (Float32 to 16 bits,
/// else Float64), where the operands are exact. For x, y > 0 the float x / y never rounds up to an integer k
/// it is below: k - x/y >= 1/y is a relative distance of at least 1/x > 2^-p. So truncation is exact; signs
/// do not matter to it. A divisor of all lanes is inverted once: (x + 1/2) r with r = 1/y rounded. (x + 1/2)
/// / y is at least 1/(2y) from every integer on both sides, a relative 1/(2x + 1) >= 2^-(w + 1), and the two
/// roundings stay below 2^(1 - p).
E divide(Prim prim, E x, E y, bool uniform_y) {
  const DType type = x.type();
  const bool wide = size_of(type) == 4;
  const DType real = wide ? DType::Float64 : DType::Float32;
  const E a = cast(x, real), b = cast(y, real);
  const E ratio = uniform_y ? (a + (is_signed_int(type) ? signed_half(a) : a.lit(0.5))) * (1.0 / b) : a / b;
  E q = cast(cast_in_range(ratio, wide ? type : DType::Int32), type);  // narrow types: MIN / -1 wraps here
  if (wide && is_signed_int(type)) q = select(y == -1.0, -x, q);
  const E zero = x.lit(0);
  return select(y == zero, zero, prim == Prim::Div ? q : x - q * y);
}

}  // namespace

E legalize_vector(ExprPool& pool, kernel::ExprId e, bool uniform_b) {
  const ExprNode n = pool[e];
  if ((n.prim == Prim::Div || n.prim == Prim::Rem) && is_int(n.type) && size_of(n.type) <= 4)
    return divide(n.prim, {&pool, n.a}, {&pool, n.b}, uniform_b);
  return {};
}

}  // namespace kiln::codegen
