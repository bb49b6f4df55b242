// Float64 functions on vectors of whole registers, in primitives: for those where the C library's vector
// forms are less accurate than its scalar ones, or there are none.
#pragma once

#include "kernel/expr.h"

namespace kiln::codegen {

struct VectorFunction {
  kernel::E value;     // none: the function is not among these
  kernel::E in_range;  // Bool: where `value` holds; none: everywhere
};

/// The function at Float64 x (and y, where it has two operands), in arithmetic that needs Fma as an
/// instruction. Within 2 ulp where it holds, special values included; docs/accuracy.md has the measured
/// errors.
VectorFunction vector_function(kernel::MathFn fn, kernel::E x, kernel::E y);

}  // namespace kiln::codegen
