// What is kept of a kernel that could not be compiled.
#pragma once

#include "kernel/kernel.h"

#include <kiln/device.h>

#include <string>

namespace kiln::engine {

/// Writes the kernel, and its LLVM IR or CUDA C where that can be emitted, to the dump directory or the
/// system's one for temporary files. Returns the path, or why there is none. Never throws.
std::string write_failed_kernel(const kernel::Kernel& kernel, const std::string& symbol, Device device,
                                int instances = 1) noexcept;

}  // namespace kiln::engine
