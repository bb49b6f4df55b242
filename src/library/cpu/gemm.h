// Matrix products on the CPU, for every dtype and any strides.
//
// Both operands are packed into panels (which is where strides and narrow types go away), then tiles of the
// result are computed by a register-blocked micro-kernel. An operand of which each panel is read by one tile
// alone is packed there, a part at a time that stays in the second cache, or read where it lies. Each element
// of the result is summed in one order, k ascending, whatever the number of threads.
#pragma once

#include "library/call.h"
#include "library/library.h"

#include <memory>

namespace kiln::cpu {

/// The CPU's Library.
const library::Library& library();

/// One product of two matrices that is small; null for others. Addresses are not looked at.
std::shared_ptr<const library::FixedCall> fixed_product(const library::Matmul& call);

}  // namespace kiln::cpu
