// What a loop over whole tensors repeats, as graphs that can be planned on their own.
#pragma once

#include "plan/region.h"

namespace kiln::engine {

struct LoopGraphs {
  ir::Graph condition;  // root: whether the loop goes on anywhere
  ir::Graph body;  // roots: the next value of each state but the count, in memory of its own; then the yields
  std::vector<ir::NodeId> captures;  // leaves and stored nodes of the whole graph that both read
};

/// Arguments of both graphs: the states, row-major, then the captures. Slots are those of `graph`.
LoopGraphs loop_graphs(const ir::Graph& graph, const plan::Regions& regions, const ir::LoopParts& loop);

}  // namespace kiln::engine
