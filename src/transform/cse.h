#pragma once

#include "transform/replacement.h"

namespace kiln::transform {

/// Merges nodes of equal structure: op, dtype, extents, operands and attributes. Operands of commutative ops
/// may be swapped where that cannot change the result's bits. Pre: verify(graph). Post: verify(graph).
Renumbering cse(ir::Graph& graph);

}  // namespace kiln::transform
