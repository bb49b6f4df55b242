// The CPU compiler: Kernel → object code (LLVM, no LLVM type shows here), and object code → callable
// functions (ORC).
#pragma once

#include "device/cpu/executable.h"
#include "device/cpu/target.h"
#include "kernel/kernel.h"
#include "support/hash128.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::cpu {

/// False in a build without compilers: then compile() is a CompileError, and so are the text forms and
/// load().
bool has_compiler();

/// Object code of a kernel: a function `<symbol>`, and `<symbol>_link` … for its other sections. CompileError
/// with LLVM's message. Thread-safe: compiles run side by side.
std::vector<std::uint8_t> compile(const kernel::Kernel& kernel, const std::string& symbol,
                                  const CpuTarget& target);

/// Text forms, for dumps.
/// `marked`: with marks (kernel/marks.h).
std::string llvm_text(const kernel::Kernel& kernel, const std::string& symbol, const CpuTarget& target,
                      bool marked = false);
/// The hash of LLVM's bitcode for a kernel, which is written in a fraction of the time of text.
Hash128 llvm_fingerprint(const kernel::Kernel& kernel, const std::string& symbol, const CpuTarget& target);
std::string assembly_text(const kernel::Kernel& kernel, const std::string& symbol, const CpuTarget& target,
                          bool marked = false);

/// Links object code into the process (for its whole life): its functions `<symbol>`, and those of the other
/// sections that it has. CompileError when the object cannot be linked.
MachineCode load(const std::vector<std::uint8_t>& object, const std::string& symbol);

/// The same for LLVM IR that somebody wrote or edited; `name` is for messages. CompileError with line and
/// column.
std::vector<std::uint8_t> compile_text(const std::string& text, const std::string& name,
                                       const CpuTarget& target);

/// LLVM's version, part of every disk key.
std::string compiler_version();

}  // namespace kiln::cpu
