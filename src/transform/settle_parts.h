// settle_parts: a result of an op of several refers to the results after it, which were recorded beside it
// (api::part_nodes). Those that handles hold become roots, so that one run computes all of them. Where one of
// them is in memory already, it may be cheaper to make the result of that.
//
// Post: a `part` has one operand. Values are kept to the bit; roots are added behind those that there are.
#pragma once

#include "transform/replacement.h"

namespace kiln::transform {

Renumbering settle_parts(ir::Graph& graph);

}  // namespace kiln::transform
