// Runs launches of kernels on the calling thread, or over all threads where that pays.
#pragma once

#include "device/launch.h"

namespace kiln::cpu {

/// Returns when the kernel has run. Pre: the code is an Executable.
void run(const device::Bound& bound);

}  // namespace kiln::cpu
