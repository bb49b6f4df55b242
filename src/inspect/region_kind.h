// What a person would call a region.
#pragma once

#include "plan/region.h"

#include <kiln/fusion_report.h>

namespace kiln::engine {

RegionKind kind_of(const ir::Graph& graph, const plan::Regions& regions, const plan::Region& region);

}  // namespace kiln::engine
