// Marks of LLVM IR (kernel/marks.h): while a function is emitted they are debug locations, which the builder
// gives every instruction; printing turns them into marks and drops them.
#pragma once

#include "kernel/marks.h"

#include <llvm/IR/DebugLoc.h>
#include <llvm/IR/Module.h>

#include <cstdint>
#include <string>
#include <vector>

namespace kiln::codegen {

/// Lets instructions of the function have locations. Returns that of those without a mark.
llvm::DebugLoc begin_marks(llvm::Function& function);
/// Pre: begin_marks(function).
llvm::DebugLoc location_of(const llvm::Function& function, kernel::Mark mark);
/// The mark that a location stands for; nothing: there is none.
std::vector<kernel::Mark> mark_at(std::uint32_t line, std::uint32_t column);
/// The module's text, each instruction's line with its mark. The module loses its locations.
std::string print_with_marks(llvm::Module& module);

}  // namespace kiln::codegen
