// The host as the engine sees it.
#pragma once

#include "device/device.h"

namespace kiln::cpu {

/// Pre: index 0.
device::Device& as_device(int index = 0);

}  // namespace kiln::cpu
