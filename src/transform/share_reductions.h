// share_reductions: reductions of the same memory over different axes begin with one over the axes that they
// have in common, so that one kernel reads for all of them; what is left to each are its few results.
#pragma once

#include "transform/replacement.h"

namespace kiln::transform {

/// `launch_bytes`: read in the time of one more kernel. `held`: elements that a kernel keeps near while it
/// reads them again. Values change in the last bits: sums are added up in another order. Not for the strict
/// mode.
Renumbering share_reductions(ir::Graph& graph, double launch_bytes, std::int64_t held);

}  // namespace kiln::transform
