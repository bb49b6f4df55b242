// take_extremes: the position of the first of a descending order is argmax's. Of integers that element is the
// greatest; of floats it is the one at that position, which may be a zero of either sign. The second is the
// first of what is left.
#pragma once

#include "transform/replacement.h"

namespace kiln::transform {

/// `seconds`: the first two of an order as well, where maps make the elements: two reductions that depend on
/// each other make these as they read them, and an order would have them stored. Post: values are the same. A
/// NaN is the greatest element either way, and of equal elements the first has the position.
Renumbering take_extremes(ir::Graph& graph, bool seconds = false);

}  // namespace kiln::transform
