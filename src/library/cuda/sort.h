// Sorting rows on a device, for every dtype and any strides: sort, argsort and topk.
#pragma once

#include "device/cuda/stream.h"
#include "library/library.h"

#include <string>

namespace kiln::cuda {

/// Enqueues. The first sort of a device, a dtype, and a class of lengths and of `kept` compiles.
/// CompileError, DeviceError.
void sort(const library::Sort& call, Stream stream);

/// What sort() could do otherwise, with the same results, on a device of such a compute capability.
library::Variants sort_choices(library::Sort call, int major);

/// The kernels' CUDA C for a call of such a dtype and shape, for tests.
std::string sort_source(const library::Sort& call, bool halves);

}  // namespace kiln::cuda
