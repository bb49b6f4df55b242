// sum_products: matrix products as reductions, where no library adds in the order that is wanted.
#pragma once

#include "transform/replacement.h"

namespace kiln::transform {

/// matmul(x, y) → sum over k of x[…, m, k]·y[…, k, n]; of halves in float32, rounded at the end; of bools any
/// of ands. k stands before the last axis that is longer than 1, so that elements are added one after the
/// other. Products of rank 16 stay. Pre: verify(graph). Post: verify(graph).
Renumbering sum_products(ir::Graph& graph);

}  // namespace kiln::transform
