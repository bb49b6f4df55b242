// canonicalise: the one numbering of a kernel's parts, so that the order in which lowering makes them is no
// part of the kernel's key.
#pragma once

#include "kernel/kernel.h"

#include <cstdint>
#include <vector>

namespace kiln::kernel {

/// What a launch binds to a canonical kernel: by the new number of a part, the number that it had.
struct OldNumbers {
  std::vector<std::uint32_t> params, slots, buffers;
  std::vector<ExprId> expressions;  // the other way round: by the old number the new one, or kNoExpr
};

/// Numbers parameters, slots, variables, accumulators, custom monoids, buffers, loops and expressions in the
/// order in which the statements first need them, and drops those that no statement needs. Kernels that
/// differ in such numbers alone become equal, and so do their hashes; nothing that is computed changes.
/// Canonical kernels stay as they are.
OldNumbers canonicalise(Kernel& kernel);

}  // namespace kiln::kernel
