// The CUDA emitter: Kernel → CUDA C with one function `<symbol>`.
//
// Parameters of the function, in order: a pointer for every buffer that is not Scratch; `arrivals`, a zeroed
// counter, when the kernel has a finish section; every launch parameter, as int when index arithmetic is
// narrow and as long long when not; every slot in its own type.
#pragma once

#include "kernel/kernel.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace kiln::codegen {

inline constexpr const char* kWaitForPrevious = "wait_for_previous_kernel();";

/// The first line of a source with instructions of one chip alone.
inline constexpr const char* kChipAlone = "// instructions of this chip alone (sm_90a)";

/// Pre: verify(kernel), and kernel.threads says how threads share it. The text depends on the arguments alone
/// and needs no other file. More than one instance: one launch runs up to that many sets of arguments, which
/// stand in a table. Its function begins with kWaitForPrevious.
/// `marked`: with marks (kernel/marks.h).
std::string emit_cuda(const kernel::Kernel& kernel, const std::string& symbol, int instances = 1,
                      bool marked = false);

/// Counters of a kernel with a link section, for so many iterations of its grid.
std::int64_t chain_counters(const kernel::Kernel& kernel, std::int64_t items);

/// Bytes of shared memory that a launch must give the kernel's blocks: those of its Scratch buffers, where
/// they are more than a block has without asking.
std::uint32_t dynamic_shared(const kernel::Kernel& kernel);

/// The table of a kernel of many instances is its one parameter: as many sets of arguments as it has room
/// for, the parameters above in their order, 8 bytes each but 4 an int of narrow index arithmetic, padded to
/// 8; then as many 32-bit numbers, each set's first block; then 32 bits, the sets there are. Their blocks
/// follow each other.
struct InstanceTable {
  std::size_t set_bytes = 0;
  int instances = 0;
  std::size_t first_blocks() const { return set_bytes * static_cast<std::size_t>(instances); }
  std::size_t count() const { return first_blocks() + 4 * static_cast<std::size_t>(instances); }
  std::size_t bytes() const { return (count() + 4 + 7) / 8 * 8; }
};
InstanceTable instance_table(const kernel::Kernel& kernel, int instances);
/// How many sets a table of at most that many bytes holds.
int instances_in(const kernel::Kernel& kernel, std::size_t bytes);

}  // namespace kiln::codegen
