// take_extremes: the position of the first of a descending order is argmax's. Of integers that element is the
// greatest; of floats it is the one at that position, which may be a zero of either sign.
#pragma once

#include "transform/replacement.h"

namespace kiln::transform {

/// Post: values are the same. A NaN is the greatest element either way, and of equal elements the first has
/// the position.
Renumbering take_extremes(ir::Graph& graph);

}  // namespace kiln::transform
