// fit_memory: regions that run again, so that a plan's memory stays below a budget.
//
// First comes another order: what frees memory runs as soon as it can. Then, a value that lies idle between
// two of its readers need not be kept: the region that made it can run once more, right before the second.
// This makes a plan smaller and slower. Two ways are tried: single regions, chosen by the bytes that they
// free where the plan is above its budget for a nanosecond of running them again; and segments of regions,
// for a deep network's way there and back. (Jain et al., "Checkmate", 2020, solve the same problem exactly,
// which takes minutes.)
#pragma once

#include "plan/region.h"
#include "schedule/target.h"

#include <cstdint>
#include <vector>

namespace kiln::plan {

/// One run of a region. `again`: it ran before, and its results take new memory.
struct RegionRun {
  std::uint32_t region = 0;
  bool again = false;
  bool operator==(const RegionRun&) const = default;
};

/// What is known of memory before there are steps.
struct MemoryNeeds {
  std::vector<std::int64_t>
      bytes;                // by node: of the plan's memory that its value takes; 0 for what is an argument's
  std::vector<bool> kept;   // by node: its memory outlives the plan, and is never made anew
  std::vector<bool> once;   // by region: it must not run again
  std::vector<bool> fixed;  // by region: it writes into what others read, and keeps its place among them
};

struct Runs {
  std::vector<RegionRun> runs;  // all regions in an order in which they can run, with runs again among them
  std::int64_t peak = 0;        // bytes of values at the worst time
};

/// Each region once, in an order in which they can run: those that free memory as soon as they can, where
/// that lowers the peak by a sixteenth or more. What a CPU's caches hold stays as it is.
Runs order_by_memory(const Graph& graph, const Regions& regions, const schedule::Target& target,
                     const MemoryNeeds& needs);

/// Pre: regions are in an order in which they can run. Post: every region runs before its readers and, where
/// memory that it reads was given up, behind another run of what makes it. The peak is above the budget only
/// where no more runs lower it.
Runs fit_memory(const Graph& graph, const Regions& regions, const schedule::Target& target,
                std::int64_t budget, const MemoryNeeds& needs);

}  // namespace kiln::plan
