// The CPU's routines, by op.
#pragma once

#include "library/call.h"

namespace kiln::cpu {

/// Pre: a library op or a contraction.
const library::Routine& routine(ir::Op op);

}  // namespace kiln::cpu
