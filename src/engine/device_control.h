// Streams of other users of a GPU, and the pools' memory by device.
#pragma once

#include "record/node.h"

#include <kiln/gpu.h>

#include <functional>
#include <string>

namespace kiln::engine {

/// Whether the process has the device; if not, why.
bool has_device(Device device, std::string& why_not);

/// Where this thread's work for a GPU goes from now on; what it was before, for restore_stream. DeviceError.
void* set_stream(Device device, void* handle);
void restore_stream(Device device, void* before);

/// This thread's work from now on comes after what a stream of somebody else's holds now…
void wait_for_stream(Device device, void* handle);
/// … and what is enqueued there from now on comes after this thread's work.
void let_stream_wait(Device device, void* handle);

/// Memory on a GPU that somebody else owns: read only. `done` is called once nothing of Kiln's uses it any
/// more, however the last use ended.
ir::Buffer* lent_memory(Device device, std::byte* data, std::uint64_t bytes, std::function<void()> done);
/// Waits for everything that anybody has enqueued on the device; failures show elsewhere.
void rest(Device device) noexcept;

}  // namespace kiln::engine
