#pragma once

#include "transform/replacement.h"

namespace kiln::transform {

/// Applies algebra that keeps every bit: composes views, cancels casts and involutions, drops operations and
/// reductions that change nothing.
/// Pre: verify(graph). Post: verify(graph).
Renumbering simplify(ir::Graph& graph);

}  // namespace kiln::transform
