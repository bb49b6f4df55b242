// recompute: values that one kernel stores for others although making them again costs the others less.
#pragma once

#include "plan/region.h"
#include "schedule/target.h"

#include <vector>

namespace kiln::plan {

/// For each region the leaves and stored nodes that it reads from memory, ascending.
std::vector<std::vector<NodeId>> reads_of(const Graph& graph, const Regions& regions);

/// Nodes that a first plan stores for other kernels alone, a few operations above memory that those kernels
/// read anyway, or that is smaller: a half type shown as float, an array less a value of each row. Empty:
/// none.
std::vector<bool> worth_recomputing(const Graph& graph, const Regions& regions,
                                    const schedule::Target& target);

/// Nanoseconds that a plan's kernels take for the memory they read and write, and for being launched.
double traffic_of(const Graph& graph, const Regions& regions, const schedule::Target& target);

}  // namespace kiln::plan
