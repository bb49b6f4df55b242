// align_orders: operands that lie in memory in different orders are brought into one.
#pragma once

#include "transform/replacement.h"

namespace kiln::transform {

/// Stores permuted operands of reductions in the order that the other operands have, if no axis is the
/// innermost in memory of all: whichever axis is on lanes, elements of the others would be gathered, which
/// takes longer than a copy through tiles. Likewise a small operand that a map spreads over many points of
/// another one, as the filters of a convolution by channels, if it lies across the axis that is the innermost
/// in memory of the other. Keeps every value to the bit.
Renumbering align_orders(ir::Graph& graph);

}  // namespace kiln::transform
