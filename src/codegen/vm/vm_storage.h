#pragma once

#include "codegen/vm/vm_code.h"

#include <cstdint>
#include <vector>

namespace kiln::codegen {

/// What a translated section knows of a value.
struct VmLife {
  enum class Kind : std::uint8_t { Block, Strip, Constant } kind;
  std::uint8_t size;           // bytes of an element
  std::int64_t constant = -1;  // Constant: where in the section's constants
};

/// Lays out a section's working memory: storage for its values, shared by those whose lives do not overlap,
/// and the block that lets it stay in the first cache. Blocks are multiples of `lanes`, a power of two. Pre:
/// code is complete.
void assign_storage(VmSection& section, const std::vector<VmLife>& values, std::int64_t lanes);

}  // namespace kiln::codegen
