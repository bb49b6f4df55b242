// The oracle for lowering and the emitters: runs a Kernel statement by statement, every loop scalar, one
// iteration after another, with eval_prim's arithmetic. Slow and simple on purpose; used by tests only.
#pragma once

#include "kernel/kernel.h"

#include <cstddef>
#include <span>

namespace kiln::kernel {

/// A buffer as compiled code sees it (element 0 need not be the first), and the bytes that may be touched.
struct BufferMemory {
  std::byte* element0 = nullptr;
  std::span<const std::byte> bytes;
};

struct KernelMemory {
  // parallel to Kernel::buffers; those of Scratch buffers are not looked at
  std::span<const BufferMemory> buffers;
  std::span<const std::int64_t> params;
  std::span<const std::uint64_t> slots;
  std::span<std::byte> scratch;
};

/// Runs the body, the link and the second section for grid iterations [0, grid) each, then finish. Pre:
/// verify(kernel). Throws InternalError on an access outside a buffer.
void interpret(const Kernel& kernel, const KernelMemory& memory, std::int64_t grid,
               std::int64_t finish_grid = 0);

}  // namespace kiln::kernel
