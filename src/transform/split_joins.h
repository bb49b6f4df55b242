// split_joins: a join of many arrays becomes a join of joins of at most kMostJoined arrays, so that the
// planner can store some of these: a kernel has room for so many arrays, each with a predicate of its own.
//
// Post: no join has more than kMostJoined operands. Values are kept to the bit.
#pragma once

#include "transform/replacement.h"

namespace kiln::transform {

inline constexpr std::size_t kMostJoined = 32;

Renumbering split_joins(ir::Graph& graph);

}  // namespace kiln::transform
