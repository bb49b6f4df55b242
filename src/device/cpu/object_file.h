// Object files as the disk cache keeps them (ELF for x86-64), read without LLVM: a build without compilers
// links with this the kernels that another build compiled (docs/cache.md).
#pragma once

#include "device/cpu/executable.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kiln::cpu {

struct ObjectFunction {
  std::string name;
  std::uint64_t bytes = 0;
  void* address = nullptr;  // once it is linked
};

/// The functions that an object defines, without addresses. Empty for what is no object of this machine.
std::vector<ObjectFunction> functions_of(std::span<const std::uint8_t> object);

/// False: objects of this machine are not understood.
bool links_objects();

/// Links an object into the process, for its whole life: the functions that it defines. Other symbols are
/// those of the process and of the C library's vector functions. CompileError for a damaged object, a
/// relocation that is not known, and a symbol that is not there. Pre: links_objects().
std::vector<ObjectFunction> link_object(std::span<const std::uint8_t> object);

/// The functions `<symbol>`, `<symbol>_link` … among some that are linked. CompileError without the first.
MachineCode machine_code_of(std::span<const ObjectFunction> functions, const std::string& symbol);

}  // namespace kiln::cpu
