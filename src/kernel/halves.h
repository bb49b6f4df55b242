// halves: which Float32 values are values of a half type already.
#pragma once

#include "kernel/expr.h"

namespace kiln::kernel {

/// Whether a Float32 expression has no more bits than `half`, because it chooses between values of that type
/// that were widened: rounding it would change nothing.
bool is_widened(const ExprPool& pool, ExprId e, DType half);

}  // namespace kiln::kernel
