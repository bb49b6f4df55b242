#pragma once

#include "transform/replacement.h"

namespace kiln::transform {

/// Computes elementwise ops and casts whose operands are all baked constants, where the reference evaluation
/// has a kernel's bits. Pre: verify(graph). Post: verify(graph).
Renumbering fold(ir::Graph& graph);

}  // namespace kiln::transform
