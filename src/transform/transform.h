// transform: a recorded graph made smaller, as an ordered list of passes. Runs on a plan miss only.
//
// Every rewrite keeps the value of every root and held node to the bit, NaN payloads apart. Recorded scalars
// are slots: no pass looks at their values.
#pragma once

#include "transform/replacement.h"

#include <span>

namespace kiln::transform {

struct Pass {
  const char* name;
  /// Post: verify(graph); roots keep their number and order; args and slots keep their numbers.
  Renumbering (*run)(ir::Graph& graph);
};
std::span<const Pass> passes();

struct Transformed {
  ir::Graph graph;
  Renumbering now;  // of the node ids before
};

/// All passes in order. A root may become a leaf, a constant, or the same node as another root.
/// `products_as_sums`: without contractions, see sum_products.h.
Transformed transform(ir::Graph graph, bool products_as_sums = false);

}  // namespace kiln::transform
