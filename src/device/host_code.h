// KILN_TRACE=perf,gdb: tells other people's tools where the machine code of CPU kernels is, with names and
// the lines of the program: `perf report` by its map file, gdb by its interface for compilers at run time.
#pragma once

#include "device/launch.h"

#include <kiln/arguments.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kiln::device {

/// Whether KILN_TRACE names one of these tools. Cheap.
bool tells_code();

/// The functions of a kernel that was loaded for the program's `line`; they stay there. From any thread.
void tell_code(const std::string& kernel, const SourceLocation& line,
               std::span<const HostFunction> functions);

/// An object file with the functions' names, addresses and line and no code, as gdb takes it.
std::vector<std::uint8_t> debug_object(const std::string& kernel, const SourceLocation& line,
                                       std::span<const HostFunction> functions);

}  // namespace kiln::device
