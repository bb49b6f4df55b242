// center_products: a product less the mean of its rows is the product with columns less their mean.
#pragma once

#include "transform/nest_products.h"
#include "transform/replacement.h"

namespace kiln::transform {

/// p - Σp / c, with p = x·w and the sum along its columns, becomes x·(w - Σw / c): so nothing is made of p
/// twice, and w is much smaller. Maps between p and the difference may multiply by a number and add a row.
/// Only of Float32, where a product may be nested (nest_products.h) and nobody else reads it or its mean.
/// Pre: verify(graph). Post: verify(graph).
Renumbering center_products(Graph& graph, const NestCosts& costs);

}  // namespace kiln::transform
