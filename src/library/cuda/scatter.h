// Writing at indices on a device, for every dtype and any strides: a thread for each value.
//
// Of several values set at one place the last stays: first the greatest position along the axis claims the
// place, then it is written. Others meet by atomic operations in any order (first in shared memory where many
// meet in few places), or, if the call is `ordered`, sorted by place.
#pragma once

#include "device/cuda/stream.h"
#include "library/library.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace kiln::cuda {

/// Enqueues. The first scatter of a device, its dtypes and `how` compiles. `memory`: scatter_bytes(call)
/// of the device's, 256-byte aligned. CompileError, DeviceError.
void scatter(const library::Scatter& call, Stream stream, std::byte* memory);
/// The memory that a scatter works in; addresses are not looked at. `l2_bytes`: of the device.
std::size_t scatter_bytes(const library::Scatter& call, std::uint64_t l2_bytes);
/// Whether a scatter only enqueues kernels, fills and copies: one that adds in order sorts, and allocates for
/// that.
bool is_recordable(const library::Scatter& call, std::uint64_t l2_bytes);

/// The kernels' CUDA C, for tests: dtypes, `how`, `ordered` and extents are looked at. `l2_bytes`: of the
/// device.
std::string scatter_source(const library::Scatter& call, std::uint64_t l2_bytes = 0);

}  // namespace kiln::cuda
