// The public elementwise functions. Most are one line a row of ops.def; the few whose recording depends on an
// operand (integers under rounding, small powers) are specialised here.
#include "api/record.h"
#include "support/check.h"

#include <cmath>
#include <limits>

namespace kiln {
namespace {

using api::Arg;
using api::elementwise;
using ir::Op;

constexpr bool rounds(Op op) {
  return op == Op::floor || op == Op::ceil || op == Op::trunc || op == Op::round;
}
constexpr bool classifies(Op op) { return op == Op::isnan || op == Op::isinf || op == Op::isfinite; }

template <Op kOp>
Tensor unary(const Tensor& x, SourceLocation loc) {
  if constexpr (rounds(kOp) || classifies(kOp)) {
    // an integer is its own floor, is finite, and equals itself
    if (x.valid() && !is_float(x.node()->dtype)) {
      if constexpr (rounds(kOp)) {
        if (is_int(x.node()->dtype)) return x;
      } else {
        return elementwise(kOp == Op::isfinite ? Op::equal : Op::not_equal, x, x, loc);
      }
    }
  }
  return elementwise(kOp, x, loc);
}

/// x to a small whole power as multiplications, by squaring: structure of the kernel, so one kernel per
/// exponent.
Tensor whole_power(const Tensor& x, std::int64_t n, SourceLocation loc) {
  Tensor result, base = x;
  for (;;) {
    if (n & 1) result = result.valid() ? elementwise(Op::multiply, result, base, loc) : base;
    if ((n >>= 1) == 0) return result;
    base = elementwise(Op::multiply, base, base, loc);
  }
}

/// x to 0.5 or -0.5 by a root. Unlike roots, powers of -0 and -Inf are those of 0 and Inf, and so are their
/// derivatives: the operand is replaced, not the result.
Tensor root_power(const Tensor& x, Op root, SourceLocation loc) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const Tensor base =
      elementwise(Op::where, elementwise(Op::equal, x, Arg(Scalar(-kInf)), loc), Arg(Scalar(kInf)), x, loc);
  return elementwise(root, elementwise(Op::add, base, Arg(Scalar(0.0)), loc), loc);
}

/// Powers that have a better spelling than pow; an empty handle when there is none. Larger exponents stay
/// pow: each multiplication of floats rounds (x^4 is within 2 ulp; halves are multiplied once at most), x^-n
/// is not 1 / x^n where x^n overflows, and an exponent that varies must not compile a kernel for each value.
Tensor special_power(const Tensor& x, Scalar y, SourceLocation loc) {
  const DType t = computed_as(api::weak_promote(x.dtype(), y));
  if (is_bool(t)) return {};
  const Tensor base = x.dtype() == t ? x : x.astype(t, loc);
  const double exponent = y.to_double();
  if (is_float(t) && std::fabs(exponent) == 0.5)
    return root_power(base, exponent > 0 ? Op::sqrt : Op::rsqrt, loc);
  const int largest = !is_float(t) ? 16 : is_half(t) ? 2 : 4, least = !is_float(t) ? 1 : is_half(t) ? -1 : -2;
  if (exponent != std::trunc(exponent) || exponent > largest || exponent < least || exponent == 0) return {};
  const auto n = static_cast<std::int64_t>(exponent);
  return n > 0 ? whole_power(base, n, loc) : whole_power(elementwise(Op::reciprocal, base, loc), -n, loc);
}

template <Op kOp>
Tensor binary(const Tensor& x, const Operand& y) {
  if constexpr (kOp == Op::pow) {
    if (x.valid() && y.tensor == nullptr)
      if (Tensor special = special_power(x, y.scalar, y.loc); special.valid()) return special;
  }
  return api::elementwise_binary(kOp, x, y);
}

}  // namespace

#define KILN_DEFINE_1(Name) \
  Tensor Name(const Tensor& x, SourceLocation loc) { return unary<Op::Name>(x, loc); }
#define KILN_DEFINE_2(Name)                                                         \
  Tensor Name(const Tensor& x, const Operand& y) { return binary<Op::Name>(x, y); } \
  Tensor Name(Scalar x, const Tensor& y, SourceLocation loc) { return elementwise(Op::Name, Arg(x), y, loc); }
#define KILN_DEFINE_3(Name)                                          \
  Tensor Name(const Tensor& x, const Operand& y, const Operand& z) { \
    return elementwise(Op::Name, x, y, z, y.loc);                    \
  }
#define KILN_OP(Name, Arity, ...) KILN_DEFINE_##Arity(Name)
#include <kiln/ops.def>
#undef KILN_OP

Tensor leaky_relu(const Tensor& x, SourceLocation loc) { return leaky_relu(x, Operand(0.01, loc)); }
Tensor elu(const Tensor& x, SourceLocation loc) { return elu(x, Operand(1.0, loc)); }
Tensor positive(const Tensor& x, SourceLocation loc) {
  const CallScope scope("positive", loc);
  if (is_bool(api::checked("positive", x)->dtype))
    throw UserError(cat("[positive] does not take bool operands: ", api::describe(x.node())));
  return x;
}
Tensor square(const Tensor& x, SourceLocation loc) {
  const CallScope scope("square", loc);
  api::checked("square", x);
  return multiply(x, Operand(x));
}
Tensor clip(const Tensor& x, const Operand& low, const Operand& high) {
  const CallScope scope("clip", low.loc);
  return elementwise(Op::minimum, elementwise(Op::maximum, x, low, low.loc), high, low.loc);
}
Tensor astype(const Tensor& x, DType dtype, SourceLocation loc) {
  const CallScope scope("astype", loc);
  return api::finish(api::cast_node(api::checked("astype", x), dtype));
}

Tensor bitcast(const Tensor& x, DType dtype, SourceLocation loc) {
  const CallScope scope("bitcast", loc);
  ir::Node* const node = api::checked("bitcast", x);
  if (size_of(dtype) != size_of(node->dtype))
    throw UserError(cat("[bitcast] ", api::describe(node), " as ", name(dtype), ", which has another size"));
  if (is_bool(node->dtype)) return astype(x, dtype);
  if (is_bool(dtype)) throw UserError(cat("[bitcast] ", api::describe(node), " as bool: write x != 0"));
  return api::finish(api::bitcast_node(node, dtype));
}

}  // namespace kiln
