// half_products: a product of halves that is computed as floats and stored as halves again is a product of
// halves.
#pragma once

#include "transform/replacement.h"

namespace kiln::transform {

/// cast(x · y) with x and y the casts to Float32 of halves of the type that is cast to, views between them or
/// not, becomes their product as halves: that adds up in Float32, too, and rounds once, but reads halves, and
/// a GPU's tensor cores take it. Only where nobody else has use of x · y. Not for the strict mode.
Renumbering half_products(ir::Graph& graph);

}  // namespace kiln::transform
