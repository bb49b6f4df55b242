// Writing at indices on a device, for every dtype and any strides: a thread for each value.
//
// Of several values set at one place the last stays: first the greatest position along the axis claims the
// place, then it is written. Others meet by atomic operations in any order (first in shared memory where many
// meet in few places), or, if the call is `ordered`, sorted by place.
#pragma once

#include "device/cuda/stream.h"
#include "library/library.h"

#include <cstdint>
#include <string>

namespace kiln::cuda {

/// Enqueues. The first scatter of a device, its dtypes and `how` compiles. CompileError, DeviceError.
void scatter(const library::Scatter& call, Stream stream);

/// The kernels' CUDA C, for tests: dtypes, `how`, `ordered` and extents are looked at. `l2_bytes`: of the
/// device.
std::string scatter_source(const library::Scatter& call, std::uint64_t l2_bytes = 0);

}  // namespace kiln::cuda
