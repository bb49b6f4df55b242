// Living beside other users of a GPU: their streams, and how much memory Kiln holds. Not part of
// <kiln/kiln.h>.
#pragma once

#include <kiln/device.h>

#include <cstdint>

namespace kiln {

/// While it lives, what this thread evaluates on the device is enqueued on `stream`, a cudaStream_t or
/// CUstream (null: the legacy default stream), in order with the caller's own work there. Without one, work
/// goes to a stream of Kiln's that all threads share. Values that other streams computed are waited for on
/// the device. Scopes nest; end them in reverse order on the thread that began them. The stream must live
/// until retire_stream. UserError for the CPU; DeviceError when there is no such device.
class StreamScope {
 public:
  StreamScope(Device device, void* stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  Device device_;
  void* before_;
};

/// To be called before a stream that a scope named is destroyed, outside of such scopes: waits for it and
/// takes back the memory kept for it. Nothing for one that was never named. DeviceError for what failed on
/// it.
void retire_stream(Device device, void* stream);
/// The stream, a CUstream, that this thread's work goes to now. UserError for the CPU; DeviceError.
void* current_stream(Device device);

/// Bytes of tensors on a device.
struct MemoryUse {
  std::uint64_t in_use = 0;  ///< in tensors
  std::uint64_t held = 0;    ///< and kept for the next ones
  std::uint64_t limit = 0;   ///< that Kiln may hold in all
};
MemoryUse memory_use(Device device);
/// Gives back what no tensor uses until at most `keep` bytes are held, or nothing is left to give; waits for
/// a GPU. Returns the bytes given back. DeviceError.
std::uint64_t trim_memory(Device device, std::uint64_t keep = 0);
/// What Kiln may hold in all from now on; 0: everything there is. Beyond it an allocation is a DeviceError.
void limit_memory(Device device, std::uint64_t bytes);

}  // namespace kiln
