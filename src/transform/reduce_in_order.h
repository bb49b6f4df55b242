// reduce_in_order: a reduction of a permuted array reduces the array as it lies in memory, and its results
// are permuted instead.
#pragma once

#include "transform/replacement.h"

#include <cstdint>

namespace kiln::transform {

/// Of reductions of so many elements at least: below, another kernel for what reads the result takes longer.
/// Post: values are the same, but that elements may be combined in another order.
Renumbering reduce_in_order(ir::Graph& graph, std::int64_t least_points = 1 << 22);

}  // namespace kiln::transform
