// partner_columns: maps that read two columns of a product together become its epilogue.
//
// A rotation of a head's halves reads columns n and n + 64 of one row for each of its two results. The main
// loop of a product has both at hand where it has made its sums, so neither the product nor a pass over it is
// needed. Planned after all merges: regions change, the graph does not.
#pragma once

#include "plan/region.h"
#include "schedule/target.h"

#include <functional>

namespace kiln::plan {

/// Makes regions of maps that read a product so a part of the product's region, where `can` says that a main
/// loop has both columns, and where it is about as fast as the library. Others learn why not.
void join_partners(const Graph& graph, const schedule::Target& target, Regions& regions,
                   const std::function<bool(const Region&)>& can);

}  // namespace kiln::plan
