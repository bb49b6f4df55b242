// expand_squares: the sum of squares about a mean is made of the sum and the sum of squares, which one kernel
// finds as it reads its operand once.
#pragma once

#include "transform/reduced_rows.h"
#include "transform/replacement.h"

namespace kiln::transform {

/// Σ(x - m)², where m is made of Σx over the same axes, becomes Σx² - m (2 Σx - n m), all in Float64, unless
/// the rows stay on chip for the second reading. x is of Float32 or narrower: its square is exact in Float64,
/// and what cancels is far below Float32's last bit unless m is 10⁴ times the deviation and more, where
/// Float32 has no more than a few bits of x - m left. Not for the strict mode.
Renumbering expand_squares(ir::Graph& graph, const KeepsRows& keeps);

}  // namespace kiln::transform
