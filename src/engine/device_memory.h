// Memory by device: buffers of any device, copies between them, and what has to be waited for.
#pragma once

#include "record/node.h"

#include <kiln/device.h>

namespace kiln::engine {

/// Where new tensors live: config().device. DeviceError, saying why, when there is no such device.
Device default_device();

/// A buffer on `device` of at least `bytes` (0 is fine) with one reference, contents unspecified. DeviceError
/// when there is no room.
ir::Buffer* allocate(std::uint64_t bytes, Device device);

/// Copies host memory into a buffer, from its beginning; `from` may change when it returns.
void upload(ir::Buffer& to, const void* from, std::uint64_t bytes);
/// Copies bytes of a buffer to host memory; everything computed into it before has happened. DeviceError for
/// what failed on its device before.
void download(void* to, const ir::Buffer& from, std::int64_t offset, std::uint64_t bytes);
/// The buffer's bytes in host memory, valid as long as the buffer: its own, or a copy that is made once.
/// DeviceError.
const std::byte* host_memory(const ir::Buffer& buffer);
/// A copy of the whole buffer on another device, with one reference.
ir::Buffer* copied_to(const ir::Buffer& from, Device device);

/// Work enqueued by this thread from now on may use the buffer: it comes after what other streams do with it.
void use_on_current_stream(ir::Buffer& buffer);
/// Before device memory changes of which the host may have a copy.
void forget_host_copy(ir::Buffer& buffer);

/// Waits for everything this thread has enqueued on the device; DeviceError for what failed.
void synchronize(Device device);

}  // namespace kiln::engine
