#pragma once

#include "device/device.h"

namespace kiln::cpu {

/// The host and its memory.
device::Device& device();

}  // namespace kiln::cpu
