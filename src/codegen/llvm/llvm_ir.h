// The LLVM emitter: Kernel → LLVM module with functions `<symbol>` (body) and `<symbol>_link`, `_second`,
// `_finish` (where there is such a section), all of type kernel::KernelFn. Vector loops become explicit
// fixed-width vector code with a masked tail.
#pragma once

#include "codegen/llvm/llvm_values.h"
#include "kernel/kernel.h"

#include <llvm/IR/Module.h>

#include <memory>
#include <string>

namespace kiln::codegen {

/// Pre: verify(kernel). Post: a module that llvm::verifyModule accepts; its memory accesses stay inside what
/// the kernel's indices name, masked lanes and false predicates touch nothing. `marked`: its instructions
/// have locations for print_with_marks().
std::unique_ptr<llvm::Module> emit_llvm(const kernel::Kernel& kernel, const std::string& symbol,
                                        const LlvmTarget& target, llvm::LLVMContext& context,
                                        bool marked = false);

}  // namespace kiln::codegen
