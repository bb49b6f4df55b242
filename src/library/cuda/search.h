// searchsorted on a device, for every dtype and any strides.
#pragma once

#include "device/cuda/stream.h"
#include "library/library.h"

#include <string>

namespace kiln::cuda {

/// Enqueues. The first search of a device and dtype compiles. CompileError, DeviceError.
void search(const library::Search& call, Stream stream);

/// The kernel's CUDA C, for tests.
std::string search_source(DType dtype);

}  // namespace kiln::cuda
