// KILN_EXPLAIN: every boundary between kernels of a plan and the condition that keeps it there.
#pragma once

#include "plan/region.h"

namespace kiln::engine {

/// Writes the plan's kernels and refusals to stderr (KILN_EXPLAIN=1), or appends one JSON object a plan, on a
/// line of its own, to the file that KILN_EXPLAIN names. Does nothing when it is off.
void explain(const ir::Graph& graph, const plan::Regions& regions);

}  // namespace kiln::engine
