// end_early: vector loops whose last vector begins early instead of being masked.
#pragma once

#include "kernel/kernel.h"

#include <cstdint>
#include <span>

namespace kiln::lower {

/// Sets LoopDecl::again of a CPU's vector loops. Pre: no buffer that the kernel stores to is also read by it
/// as another buffer. `params`: those of the launch.
void end_early(kernel::Kernel& kernel, std::span<const std::int64_t> params);

}  // namespace kiln::lower
