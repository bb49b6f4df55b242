// A GPU as the engine sees it, and what other users of it need.
#pragma once

#include "device/device.h"

#include <functional>

namespace kiln::cuda {

/// DeviceError, saying why, when there is no such device.
device::Device& as_device(int index);

/// Memory on a GPU that somebody else owns: read only. `done` is called once nothing of Kiln's uses it any
/// more, however the last use ended.
ir::Buffer* lent_memory(int device, std::byte* data, std::uint64_t bytes, std::function<void()> done);

}  // namespace kiln::cuda
