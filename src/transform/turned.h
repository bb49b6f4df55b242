// A matrix whose rows are another's columns.
#pragma once

#include "ir/builder.h"
#include "transform/nouns.h"

namespace kiln::transform {

/// x with its last two axes exchanged. Pre: at least two.
inline NodeId turned(const Graph& graph, ir::Builder& add, NodeId x) {
  const std::size_t rank = graph[x].dims.size();
  ir::Permute axes;
  for (std::size_t a = 0; a < rank; ++a) axes.show(a, a + 2 < rank ? a : 2 * rank - 3 - a);
  return add.add(Op::permute, {x}, axes);
}

}  // namespace kiln::transform
