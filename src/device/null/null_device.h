// The device `null` plans and emits, and runs nothing: what a program becomes on a GPU, without a GPU, its
// driver or its compiler.
//
// It stands for a GPU of the compute capability that config().null_target names. Plans, kernels and their
// CUDA C are those of that GPU. Its memory has addresses but no bytes: writes are dropped, launches and
// library calls return at once, and whoever asks for a value gets a DeviceError.
#pragma once

#include "device/device.h"

namespace kiln::null {

/// Pre: index 0.
device::Device& as_device(int index = 0);

}  // namespace kiln::null
