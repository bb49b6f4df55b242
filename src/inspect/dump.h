// Names of kernels, and the files a person reads to see what was generated.
#pragma once

#include "cache/kernel_cache.h"
#include "lower/lower.h"
#include "plan/region.h"

#include <string>

namespace kiln::engine {

/// "exp_sum_divide": ops of a region in order, shortened; part of dump file names.
std::string label_of(const ir::Graph& graph, const plan::Region& region);
/// "exp sum divide": all of them, for log lines.
std::string op_names(const ir::Graph& graph, const plan::Region& region);

/// Writes what config().dump_stages ask for of one kernel to the directory config().dump, or to stdout.
void dump_kernel(const ir::Graph& graph, const plan::Regions& regions, const plan::Region& region,
                 const lower::Lowered& lowered, const CachedKernel& kernel, Device device);

}  // namespace kiln::engine
