// reuse_products: a weighted sum of the elements of one product is made of another product that is there.
#pragma once

#include "transform/replacement.h"

namespace kiln::transform {

/// sum over j of w[i, j]·(Σ_d a[i, d]·b[j, d]) → sum over d of a[i, d]·o[i, d], where o = w·b is a product of
/// the graph. So the gradient of a softmax, whose rows' sums are of weights times their cotangents, reads the
/// result of the attention instead of values of all pairs. Factors of w may stand in any order, those of a
/// row alone may be missing in o, and casts between them are what products round anyway. Not in the strict
/// mode: sums change their order.
Renumbering reuse_products(ir::Graph& graph);

}  // namespace kiln::transform
