// A GPU as the engine sees it.
#pragma once

#include "device/device.h"

namespace kiln::cuda {

/// DeviceError, saying why, when there is no such device.
device::Device& as_device(int index);

}  // namespace kiln::cuda
