// pair_maxima: a sum of exponentials relative to a maximum no longer waits for the maximum, so that one
// kernel finds both as it reads their operand once.
#pragma once

#include "transform/reduced_rows.h"
#include "transform/replacement.h"

namespace kiln::transform {

/// Σe^(x - m), where m is the maximum of x over the same axes, becomes e^(l - m), where l is the logarithm of
/// Σe^x in Float64, unless the rows stay on chip for the second reading. x is of Float32 or narrower: what l
/// loses is far below the sum's last bit. Not where x is made of a matrix product, which may be an
/// attention's (plan/attention.h); not for the strict mode.
Renumbering pair_maxima(ir::Graph& graph, const KeepsRows& keeps);

}  // namespace kiln::transform
