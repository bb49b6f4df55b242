// find_products: sums of products that are matrix products, written in another way.
#pragma once

#include "transform/replacement.h"

#include <cstdint>

namespace kiln::transform {

/// `sum(a[:, :, None] * b[None], 1)` and its kin become a matmul: a sum over one axis of a product of two
/// floats, of which one operand has no second free axis of the other. Batch axes, in any order, are axes that
/// both operands have. Only where both free axes are long enough that a matrix product takes less time than a
/// reduction. Sums are made in the order of matmul. Float32 sums of up to `most_nested` elements, along the
/// last axis, whose results are only reduced further, as the scores of a nearest neighbour are, stay: one
/// kernel makes both reductions and stores no score.
Renumbering find_products(ir::Graph& graph, std::int64_t most_nested = 0);

}  // namespace kiln::transform
