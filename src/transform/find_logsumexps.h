// find_logsumexps: the greatest element plus the logarithm of the sum of exponentials relative to it is one
// reduction, logsumexp.
#pragma once

#include "transform/replacement.h"

namespace kiln::transform {

/// m + log(Σ exp(x - m)) with m = max x, in any spelling of axes and broadcasts, becomes l + (l - l) with l =
/// logsumexp(x): one reduction, so that x is read, or made, once. The last summand keeps what an infinite m,
/// which makes l infinite, makes NaN. Only where the sum has no other reader: its value apart from m would be
/// less exact. Not for the strict mode.
Renumbering find_logsumexps(ir::Graph& graph);

}  // namespace kiln::transform
