// sum_batches: a sum of matrix products over their batches is one matrix product.
#pragma once

#include "transform/replacement.h"

namespace kiln::transform {

/// sum over b of x[b, m, k]·y[b, k, n] → x'[m, (b k)]·y'[(b k), n], of numbers. So the gradient by a weight
/// that a batch shares is made without a product of each example. Only where all batches are summed, both
/// operands have them, nobody else reads the products, and the result has elements enough for a product's
/// tiles. Half types round once instead of after each product. Pre: a device whose products read rows and
/// columns in parts, else operands are copied.
Renumbering sum_batches(ir::Graph& graph);

}  // namespace kiln::transform
