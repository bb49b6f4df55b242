// norm: whether dependent reductions over rows can run as one kernel, asked by the planner before it merges.
#pragma once

#include "schedule/schedule.h"

namespace kiln::schedule {

struct NormFacts {
  std::int64_t rows = 1, length = 1;  // kept points, and elements that are reduced to each
  bool columns = false;               // the outer axes are reduced
  std::int64_t run = 1;               // of columns: kept points that lie side by side
};

/// refuse_norm() of schedule.h, and of a CPU whether the one kernel would read memory in an order that takes
/// longer than separate kernels, each of which reads everything in the order of memory.
Why refuse_norm(const NormFacts& facts, const Target& target);

}  // namespace kiln::schedule
