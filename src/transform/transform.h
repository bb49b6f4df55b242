// transform: Graph → Graph, run on a plan miss: the ordered list of exact rewrites.
#pragma once

#include "ir/graph.h"

#include <vector>

namespace kiln::transform {

struct Transformed {
  ir::Graph graph;
  std::vector<ir::NodeId> now;  // now[id before] = id after, or kNoNode when it is gone
};

Transformed transform(ir::Graph graph);

}  // namespace kiln::transform
