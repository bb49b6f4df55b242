// A GPU as the engine sees it.
#pragma once

#include "device/cuda/driver.h"
#include "device/device.h"

namespace kiln::cuda {

/// DeviceError, saying why, when there is no such device.
device::Device& as_device(int index);

/// What the planner may count on. Rates are a fixed table by compute capability, of the generation's largest
/// chip; sizes are the device's own.
schedule::Target target_of(const DeviceInfo& device);

}  // namespace kiln::cuda
