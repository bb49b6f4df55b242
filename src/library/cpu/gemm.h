// Matrix products on the CPU, for every dtype and any strides.
//
// Both operands are packed into panels (which is where strides and narrow types go away), then tiles of the
// result are computed by a register-blocked micro-kernel. An operand of which each panel is read by one tile
// alone is packed there, a part at a time that stays in the second cache, or read where it lies. Each element
// of the result is summed in one order, k ascending, whatever the number of threads.
#pragma once

#include "library/library.h"

namespace kiln::cpu {

/// The CPU's Library.
const library::Library& library();

}  // namespace kiln::cpu
