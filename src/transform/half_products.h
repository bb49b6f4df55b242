// half_products: a product of halves that is computed as floats and stored as halves again is a product of
// halves.
#pragma once

#include "transform/replacement.h"

namespace kiln::transform {

/// cast(x · y) with x and y the casts to Float32 of halves of the type that is cast to, views between them or
/// not, becomes their product as halves: that adds up in Float32, too, and rounds once. Only where nobody
/// else has use of x · y. What would be 15 times as many multiplications a second on a GPU's tensor cores,
/// and a third of the bytes, is not left to whoever writes the casts. Not for the strict mode.
Renumbering half_products(ir::Graph& graph);

}  // namespace kiln::transform
