// Launches of kernels: arguments as the emitted functions take them, and graphs of recorded launches.
#pragma once

#include "device/device.h"
#include "device/launch.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace kiln::cuda {

/// Blocks of threads for so many iterations of a kernel's body.
device::LaunchShape shape_of(const kernel::Kernel& kernel, std::int64_t grid);

/// Sets of arguments that one launch of a kernel takes at most where its parameters may take so many bytes,
/// and the number of sets, one of two, that a kernel for `instances` of them is compiled for.
int most_instances(const kernel::Kernel& kernel, int parameter_bytes);
int room_for(const kernel::Kernel& kernel, int instances, int parameter_bytes);

/// Asks for the dynamic shared memory that the shape needs. DeviceError where the device has too little, or
/// no clusters or cooperative launches where the shape has them.
void prepare(const device::Launch& launch);

/// Enqueues one launch, for one set of arguments or for several, on the thread's stream. DeviceError.
void launch_kernels(std::span<const device::Bound> launches, int device);

/// See device::Device::record.
std::unique_ptr<device::Graph> record_graph(int device, std::size_t steps, std::int64_t counters,
                                            const std::function<void(std::size_t)>& enqueue);

}  // namespace kiln::cuda
