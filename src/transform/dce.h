#pragma once

#include "transform/replacement.h"

namespace kiln::transform {

/// Drops nodes that no root needs and numbers the rest densely, in the same order.
/// Pre: verify(graph). Post: verify(graph).
Renumbering dce(ir::Graph& graph);

}  // namespace kiln::transform
