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

// ---- exponentials and sigmoids ----
E exp(E x);
E exp2(E x);
E expm1(E x);
E sigmoid(E x);  // 1 / (1 + e^-x)
E silu(E x);     // x sigmoid(x); -0 at -inf, the limit
E tanh(E x);
E sinh(E x);
E cosh(E x);
E softplus(E x);        // log(1 + e^x)
E mish(E x);            // x tanh(softplus(x)); -0 at -inf, the limit
E logaddexp(E x, E y);  // log(e^x + e^y)

// ---- error function ----
E erf(E x);
E erfc(E x);
E ndtri(E p);      // inverse of Phi: -inf at 0, inf at 1, NaN outside
E gelu(E x);       // x Phi(x), with erf; -0 at -inf, the limit
E gelu_tanh(E x);  // x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)); -0 at -inf, the limit

// ---- logarithms ----
E log(E x);
E log2(E x);
E log10(E x);
E log1p(E x);
E asinh(E x);
E acosh(E x);
E atanh(E x);

// ---- trigonometry ----
E sin(E x);
E cos(E x);
E tan(E x);
E asin(E x);
E acos(E x);
E atan(E x);
E atan2(E y, E x);

// ---- powers ----
E pow(E x, E y);                 // floats; IEEE/C99 special cases
E pow_int(E x, std::int64_t n);  // by multiplication, rounded once where n > 4; integers as below
E pow_int(E x, E y);             // integers: wraps; a negative exponent truncates toward zero, 0 to it is 0
E cbrt(E x);
E rsqrt(E x);
E hypot(E x, E y);

// ---- signs, neighbours, remainders, shifts ----
E floor_divide(E x, E y);  // floor of the exact quotient; floats: x / 0 = x / 0, integers: x // 0 = 0
E remainder(E x, E y);     // Python's %, sign of y; integers: x % 0 = 0
E fmod(E x, E y);          // floats; exact, sign of x
E sign(E x);               // -1, 0 or 1 (sign(-0) is 0), NaN; any numeric type
E signbit(E x);            // Bool
E copysign(E x, E y);
E nextafter(E x, E y,
            DType type);  // among the values of `type`: x's own, or the half type that x and y hold values of
E shift_left(E x, E y);   // 0 where y is negative or at least the width
E multiply_high(E x, E y);  // integers: upper half of the exact product
E shift_right(E x, E y);    // there 0, or -1 for negative x

// ---- random bits ----
E philox_child(E number, E key, E purpose);  // UInt64; see ops.def

}  // namespace kiln::lower::math
