// arrange_operands: a reduction over pairs, Σₖ f(x[i, k], y[j, k]) for any f and any reduction, reads y with
// its pairs next to each other.
#pragma once

#include "transform/nest_products.h"
#include "transform/replacement.h"

namespace kiln::transform {

/// Stores small operands of such reductions with the kept axis last: the lanes of a CPU and the threads of a
/// GPU, each with results of its own, then read adjacent elements. Keeps every value to the bit.
/// `least_across`: results side by side from which on it pays. Not of those reductions that a
/// main loop for pairs makes (`nests`), which reads them in any order.
Renumbering arrange_operands(ir::Graph& graph, std::int64_t least_across, const NestCosts& nests = {});

}  // namespace kiln::transform
