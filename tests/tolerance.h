// The one table of tolerances: how far a compiled operation may be from the oracle, in units of the last
// place of the stored dtype. The oracle is rounded too, so each is docs/accuracy.md's bound plus a half,
// rounded up.
#pragma once

#include "ir/op.h"

#include <kiln/config.h>
#include <kiln/dtype.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace kiln::testing {

/// Units in the last place of a float32 result. 0: bit for bit (zero signs too).
inline int float32_ulp(ir::Op op) {
  using ir::Op;
  switch (op) {
    case Op::exp:
    case Op::exp2:
    case Op::expm1:
    case Op::log:
    case Op::log2:
    case Op::log10:
    case Op::log1p:
    case Op::logaddexp:
    case Op::tan:
    case Op::asin:
    case Op::acos:
    case Op::atan:
    case Op::atan2:
    case Op::sinh:
    case Op::cosh:
    case Op::asinh:
    case Op::acosh:
    case Op::atanh:
    case Op::erfc:
    case Op::lgamma:
    case Op::digamma:
    case Op::softplus:
    case Op::mish:
    case Op::pow:
    case Op::hypot: return 1;
    case Op::rsqrt:
    case Op::elu: return 2;
    case Op::sin:
    case Op::cos:
    case Op::tanh:
    case Op::erf:
    case Op::sigmoid:
    case Op::silu:
    case Op::gelu_tanh:
    case Op::selu:
    case Op::hardswish: return 3;
    case Op::ndtri:
    case Op::gelu: return 5;
    default: return 0;
  }
}

/// Units by which a function that a GPU has may be off: its maker's 2 (src/kernel/native_fns.def) and the
/// oracle's half.
inline int native_ulp(ir::Op op) {
  switch (op) {
#define KILN_NATIVE_OP(Name, Symbol, Reference, Cost) case ir::Op::Name:
#define KILN_NATIVE_FN(Name, Symbol, Reference)
#include "kernel/native_fns.def"
#undef KILN_NATIVE_OP
#undef KILN_NATIVE_FN
    return 3;
    default: return 0;
  }
}
inline bool on_gpu() { return config().device != "cpu"; }

/// Whether of -0 and +0 either may be the result.
inline bool either_zero(ir::Op op) {
  return on_gpu() && (op == ir::Op::maximum || op == ir::Op::minimum || op == ir::Op::relu);
}

/// The same for any stored dtype. Halves are computed in float32 and rounded once: at most a neighbour.
/// Float64 calls the C library as the oracle does, but composes some functions; gelu's tails take e to a
/// rounded power of up to 700, and lgamma and digamma cancel beside their zeros below 0.
inline int tolerance_ulp(ir::Op op, DType stored) {
  const int f32 = on_gpu() ? std::max(float32_ulp(op), native_ulp(op)) : float32_ulp(op);
  if (!is_float(stored) || f32 == 0) return 0;
  if (is_half(stored)) return 1;
  if (stored == DType::Float64)
    return op == ir::Op::gelu || op == ir::Op::gelu_tanh || op == ir::Op::lgamma || op == ir::Op::digamma
               ? 256
               : 4;
  return f32;
}

/// Distance of two values of a float dtype in units of the last place; 0 for two NaN, huge where only one is,
/// or where zeros differ in sign.
inline double ulp_distance(double a, double b, DType stored) {
  if (a != a || b != b) return a != a && b != b ? 0 : HUGE_VAL;
  if (a == b) return std::signbit(a) == std::signbit(b) ? 0 : HUGE_VAL;
  if (std::isinf(a) || std::isinf(b)) return HUGE_VAL;
  struct Format {
    int digits, min_exponent;
  };
  const Format f = stored == DType::Float16    ? Format{11, -14}
                   : stored == DType::BFloat16 ? Format{8, -126}
                   : stored == DType::Float32  ? Format{24, -126}
                                               : Format{53, -1022};
  const int exponent = std::max(std::ilogb(b == 0 ? a : b), f.min_exponent);
  return std::fabs(a - b) / std::ldexp(1.0, exponent - f.digits + 1);
}

}  // namespace kiln::testing
