// What is kept of a kernel that could not be compiled.
#pragma once

#include "device/compiler.h"

#include <string>

namespace kiln::engine {

/// Writes the kernel, and the source that is compiled where that can be generated, to the dump directory or
/// the system's one for temporary files. Returns the path, or why there is none. Never throws.
std::string write_failed_kernel(const device::Unit& unit, const device::Compiler& compiler) noexcept;

}  // namespace kiln::engine
