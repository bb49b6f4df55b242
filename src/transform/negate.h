// negate: moves negations outward, so that values which differ in sign only become one value.
#pragma once

#include "transform/replacement.h"

namespace kiln::transform {

/// f(-x) → -f(x) for odd f, f(x) for even f; (-x)·y, (-x)/y, x/(-y) → -(x·y), -(x/y); x + (-y) → x - y and so
/// on. Float types only. Every rule keeps each bit: the sign bit passes through unrounded, and the expansions
/// of odd functions work on |x|.
Renumbering negate(ir::Graph& graph);

}  // namespace kiln::transform
