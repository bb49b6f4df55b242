// The nouns of the graph, as every pass names them.
#pragma once

#include "ir/graph.h"

namespace kiln::transform {

using ir::Graph;
using ir::GraphNode;
using ir::kNoNode;
using ir::NodeId;
using ir::Op;
using ir::OpKind;

}  // namespace kiln::transform
