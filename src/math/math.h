// Mathematical functions as expansions in primitives: straight-line code that vectorises at any width.
//
// Operands are Float32 or Float64 unless said otherwise. Float32 is inline: no calls, no branches, at most 2
// ulp with exact special values (docs/accuracy.md has the measured table). Float64 calls the C library where
// it has the function. Nothing here depends on the target; only DivBounded lets targets differ, in a last
// bit.
#pragma once

#include "kernel/expr.h"

namespace kiln::lower::math {

using kernel::E;

// ---- one function for each KILN_MATH_OP of the op table, whose doc column says what it computes ----
#define KILN_DECLARE_MATH_1(Name) E Name(E x);
#define KILN_DECLARE_MATH_2(Name) E Name(E x, E y);
#define KILN_DECLARE_MATH_3(Name) E Name(E x, E y, E z);
#define KILN_OP(...)
#define KILN_MATH_OP(Name, Arity, ...) KILN_DECLARE_MATH_##Arity(Name)
#include <kiln/ops.def>
#undef KILN_OP
#undef KILN_DECLARE_MATH_1
#undef KILN_DECLARE_MATH_2
#undef KILN_DECLARE_MATH_3

// ---- functions that ops of the table share, or use for some of their dtypes ----
E pow(E x, E y);                 // floats; IEEE/C99 special cases
E pow_int(E x, std::int64_t n);  // by multiplication, rounded once where n > 4; integers as below
E pow_int(E x, E y);             // integers: wraps; a negative exponent truncates toward zero, 0 to it is 0
E cbrt(E x);
E fmod(E x, E y);  // floats; exact, sign of x
E nextafter(E x, E y,
            DType type);  // among the values of `type`: x's own, or the half type that x and y hold values of
E shift_left(E x, E y);   // 0 where y is negative or at least the width
E shift_right(E x, E y);  // there 0, or -1 for negative x

}  // namespace kiln::lower::math
