// align_orders: operands of a reduction that lie in memory in different orders are brought into one.
#pragma once

#include "transform/replacement.h"

namespace kiln::transform {

/// Stores permuted operands of reductions in the order that the other operands have, if no axis is the
/// innermost in memory of all: whichever axis is on lanes, elements of the others would be gathered, which
/// takes longer than a copy through tiles. Keeps every value to the bit.
Renumbering align_orders(ir::Graph& graph);

}  // namespace kiln::transform
