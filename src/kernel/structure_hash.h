// What a kernel computes, whatever its parts are called: for a census of kernels before and after a change.
#pragma once

#include "kernel/kernel.h"

namespace kiln::kernel {

/// Equal for kernels that differ in the numbers of their parameters, slots, variables, accumulators and
/// buffers alone. Parts that nothing uses do not count. No key: kernels of equal structure may take their
/// arguments in another order.
Hash128 structure_hash(const Kernel& kernel);

}  // namespace kiln::kernel
