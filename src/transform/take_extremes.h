// take_extremes: the first of a descending order is the greatest element, and its position argmax's.
#pragma once

#include "transform/replacement.h"

namespace kiln::transform {

/// Post: values are the same, but that of zeros of both signs either may be the greatest. So it is not for
/// the strict mode. A NaN is the greatest element either way, and of equal elements the first has the
/// position.
Renumbering take_extremes(ir::Graph& graph);

}  // namespace kiln::transform
