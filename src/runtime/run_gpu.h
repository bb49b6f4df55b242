// Steps of a plan on a GPU: enqueued on the calling thread's stream.
#pragma once

#include "backend/library.h"
#include "runtime/plan.h"

namespace kiln::runtime {

/// Addresses of the launch's buffers (those of Scratch are not looked at) and values of its slots. DeviceError.
void launch_on_gpu(const Launch& launch, void* const* buffers, const std::uint64_t* slots, int device);

/// Operands and results are on the device. Sorts, searches and scatters happen on the host.
void matmul_on_gpu(const backend::Matmul& call, int device);

void sort_on_gpu(const backend::Sort& call, int device);
void search_on_gpu(const backend::Search& call, int device);
void scatter_on_gpu(const backend::Scatter& call, int device);

}  // namespace kiln::runtime
