// The host's compiler and its vm, as the kernel cache sees them.
#pragma once

#include "device/compiler.h"
#include "device/cpu/target.h"

#include <memory>
#include <string>

namespace kiln::cpu {

/// For the target in force. UserError for a level that the host lacks.
std::shared_ptr<const device::Compiler> compiler();

/// What of a target and of LLVM decides machine code, see device::Compiler::key().
std::string compiler_key(const CpuTarget& target);

}  // namespace kiln::cpu
