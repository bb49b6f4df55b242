// Memory by device: buffers of any device and copies between them.
#pragma once

#include "device/device.h"
#include "record/node.h"

#include <kiln/device.h>

namespace kiln::engine {

/// Where new tensors live: config().device. DeviceError, saying why, when there is no such device.
Device default_device();

/// A buffer on `device` of at least `bytes` (0 is fine) with one reference, contents unspecified. DeviceError
/// when there is no room.
ir::Buffer* allocate(std::uint64_t bytes, Device device);

/// A copy of the whole buffer on another device, with one reference.
ir::Buffer* copied_to(const ir::Buffer& from, Device device);

/// The buffer's bytes in host memory, see device::Device::host_memory.
inline const std::byte* host_memory(const ir::Buffer& b) { return device::at(b.device).host_memory(b); }

inline device::Device& device_of(const ir::Buffer& buffer) { return device::at(buffer.device); }

}  // namespace kiln::engine
