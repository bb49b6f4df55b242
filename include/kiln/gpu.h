// Sharing a GPU with other libraries: evaluations on their streams, and limits for the memory that Kiln
// holds. Not part of <kiln/kiln.h>.
#pragma once

#include <kiln/device.h>

#include <cstdint>

namespace kiln {

/// During the lifetime of a scope, evaluations of this thread on the device are enqueued on `stream`, a
/// cudaStream_t or CUstream (null: the legacy default stream), in order with the caller's own work there.
/// Without a scope, they go to one stream of Kiln's that all threads share. The device waits for values that
/// other streams compute. Scopes nest; end them in reverse order on the thread that began them. The stream
/// must live until retire_stream. UserError for the CPU; DeviceError if there is no such device.
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

/// Call this before you destroy a stream that a scope has named, and outside of such scopes. It waits for the
/// stream and takes back the memory kept for the stream. A stream that no scope has named needs no call.
/// DeviceError if work on the stream failed.
void retire_stream(Device device, void* stream);
/// The stream, a CUstream, to which evaluations of this thread go now. UserError for the CPU; DeviceError.
void* current_stream(Device device);

/// Bytes of tensors on a device.
struct MemoryUse {
  std::uint64_t in_use = 0;  ///< of tensors that exist
  std::uint64_t held = 0;    ///< in_use, and freed blocks that Kiln keeps for later tensors
  std::uint64_t limit = 0;   ///< the most that Kiln may hold
};
MemoryUse memory_use(Device device);
/// Returns unused memory to the driver until at most `keep` bytes are held, or no unused memory is left;
/// waits for a GPU. Returns the number of bytes given back. DeviceError.
std::uint64_t trim_memory(Device device, std::uint64_t keep = 0);
/// Sets the most bytes that Kiln may hold (0: the whole memory). An allocation beyond it is a DeviceError.
void limit_memory(Device device, std::uint64_t bytes);

}  // namespace kiln
