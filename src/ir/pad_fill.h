// Whether a pad is known to fill with zeros when a graph is planned. The values of scalars are no part of a
// plan's key, but this is: reading outside of an array can be left to hardware that gives 0 there.
#pragma once

#include "ir/graph.h"

namespace kiln::ir {

/// Attribute word of such a pad.
inline constexpr std::uint64_t kZeroFill = 1;

inline bool fills_with_zeros(const Graph& graph, const GraphNode& n) {
  return n.op == Op::pad && n.attr64 == kZeroFill && graph[n.in[1]].op == Op::scalar;
}

}  // namespace kiln::ir
