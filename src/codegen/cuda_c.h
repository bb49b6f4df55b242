// The CUDA emitter: Kernel → CUDA C with one function `<symbol>`.
//
// Parameters of the function, in order: a pointer for every buffer that is not Scratch; `arrivals`, a zeroed counter,
// when the kernel has a finish section; every launch parameter, as int when index arithmetic is narrow and as long long
// when not; every slot in its own type.
#pragma once

#include "kernel/kernel.h"

#include <string>

namespace kiln::codegen {

/// Pre: verify(kernel), and kernel.threads says how threads share it. The text depends on the kernel and the symbol
/// alone and needs no other file.
std::string emit_cuda(const kernel::Kernel& kernel, const std::string& symbol);

}  // namespace kiln::codegen
