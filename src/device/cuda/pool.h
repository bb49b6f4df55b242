// Device memory for buffers: a caching, stream-ordered pool. Asking the driver for memory costs more than
// most kernels, and giving it back waits for the device, so freed memory is kept.
//
// A freed block belongs to the stream that used it last and is given out again to that stream at once: its
// kernels run in order. Another stream gets it when the first has nothing under way, or, before the driver is
// asked a second time, behind an event. Blocks up to 8 MiB are carved from chunks of 2 and 32 MiB, larger
// ones have the driver's own. Any thread may free any block; freeing after exit began, or in a forked child,
// does nothing.
#pragma once

#include "device/cuda/stream.h"

#include <cstddef>
#include <cstdint>

namespace kiln::cuda {

/// Memory given out: 256-byte aligned, contents unspecified.
struct Block {
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;  ///< usable, at least what was asked for
  int device = 0;
  alignas(
      16) std::byte owner[64] = {};  ///< the owner's: a place for the header of what it makes of the block
};

/// A block of at least `bytes` (0 is fine) that work of `stream` may use from now on. DeviceError naming
/// bytes wanted, free and held, when the device has no room after everything cached was returned; the next
/// call may succeed.
Block* allocate(std::uint64_t bytes, Stream stream);
/// `stream`, of the block's device, is where the block was used last; work on any other must be ordered
/// before it.
void release(Block* block, Stream stream) noexcept;

struct PoolStatistics {
  std::uint64_t in_use = 0;              ///< bytes in blocks given out
  std::uint64_t peak = 0;                ///< the most of that so far
  std::uint64_t held = 0;                ///< bytes from the driver: in use, cached, and not yet carved
  std::uint64_t limit = 0;               ///< bytes the pool may hold in all
  std::uint64_t driver_allocations = 0;  ///< times the driver was asked for memory
  std::uint64_t allocations = 0;         ///< blocks given out
};
PoolStatistics pool_statistics(int device);

/// Returns memory that nothing uses to the driver until at most `keep` bytes are held, or nothing is left to
/// return. Waits for the device. Returns the bytes returned.
std::uint64_t trim(int device, std::uint64_t keep = 0);
/// Bytes the pool may hold in all, for life beside other users of the device; 0 restores the default: all.
void set_memory_limit(int device, std::uint64_t bytes);

/// Blocks made from now on are each an allocation of the driver's, of the bytes asked for, and go back to it
/// when they are freed, after waiting for the device: a checker of memory accesses (compute-sanitizer) then
/// sees where each ends and begins. Slow.
void set_exact_blocks(bool exact);

/// The cached blocks of one stream become another's, of the same device. Pre: nothing is under way in `from`.
void hand_over(Stream from, Stream to);

}  // namespace kiln::cuda
