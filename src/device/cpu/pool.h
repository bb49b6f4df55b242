// Host memory for buffers: a caching pool. Page faults cost more than most kernels, so freed memory is kept.
//
// Small blocks (up to 64 KiB) are carved from 2 MiB chunks, medium ones (up to 1 MiB) mapped one by one; both
// are kept in thread-local lists, so that allocating and freeing one takes no lock. Large blocks are mapped 2
// MiB aligned with transparent huge pages and kept in shared lists, least recently used first out. Any thread
// may free any block, after the allocating thread's end and during exit too: the pool is immortal.
#pragma once

#include "record/node.h"

#include <cstdint>
#include <string>

namespace kiln::cpu {

/// A buffer of at least `bytes` (0 is fine) with one reference, 64-byte aligned, contents unspecified. Large
/// sizes waste at most an eighth. DeviceError, naming bytes wanted and available, when the limit or the
/// system refuses after everything cached was returned.
ir::Buffer* allocate(std::uint64_t bytes);

struct PoolStatistics {
  std::uint64_t in_use = 0;              ///< bytes in live buffers
  std::uint64_t cached = 0;              ///< bytes held for reuse
  std::uint64_t limit = 0;               ///< bytes the pool may hold in all
  std::uint64_t system_allocations = 0;  ///< times memory was mapped
  std::uint64_t allocations = 0;         ///< buffers given out
};
PoolStatistics pool_statistics();

/// Returns cached medium and large blocks to the system until at most `keep` bytes of large ones remain
/// cached; those in other threads' own lists stay. Returns the bytes returned.
std::uint64_t trim(std::uint64_t keep = 0);

/// Bytes the pool may hold in all, for life beside other libraries; 0 restores the default: physical memory
/// or the control group's limit. Cached large blocks are kept up to half of it.
void set_memory_limit(std::uint64_t bytes);

}  // namespace kiln::cpu
