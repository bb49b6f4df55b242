// Matrix products of arrays on a device by the CPU's library, for dtypes and promises that cuBLASLt does not
// have.
#pragma once

#include "device/cuda/stream.h"
#include "library/library.h"

namespace kiln::cuda {

/// Waits for the stream; right for every dtype, and slow. DeviceError.
void multiply_on_host(const library::Matmul& call, Stream stream);

}  // namespace kiln::cuda
