// From a finished plan's graph, regions and kernels to a kiln::FusionReport.
#pragma once

#include "cache/kernel_cache.h"
#include "lower/lower.h"
#include "plan/region.h"
#include "schedule/target.h"

#include <kiln/fusion_report.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace kiln::engine {

/// What the recorded operations would be as one kernel each.
struct Unfused {
  FusionReport::Before before;
  std::map<std::string, int> by_op;
};
Unfused unfused(const ir::Graph& recorded);

/// What runs a region.
struct RegionFacts {
  struct Kernel {
    const lower::Lowered* lowered;
    std::shared_ptr<const CachedKernel> code;
    Verdict verdict;
  };
  const plan::Region* region = nullptr;
  std::vector<Kernel> kernels;
  bool library = false;            // a call of a library, or of Kiln's main loops
  std::int64_t library_bytes = 0;  // that the call itself moves, each operand once
  double gain = 0;                 // of the region's variants, as measured
  bool tiles = false;              // the kernels are parts of the call, and move near memory alone
  bool stored = true;              // false: a library call takes the results piece by piece
};

/// Nodes, regions, boundaries, near misses and totals; what an evaluation adds (trigger, difference, stored
/// values) is left out. `facts`: one for each region that has something to do.
FusionReport fusion_report(const ir::Graph& graph, const plan::Regions& regions,
                           std::span<const RegionFacts> facts, const Unfused& before,
                           const schedule::Target& target, Device device);

/// Where code came from, as of now: "memory", "disk", "compiled", or "vm" while it is not compiled.
std::string verdict_of(const CachedKernel& code, Verdict verdict);

}  // namespace kiln::engine
