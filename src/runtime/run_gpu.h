// Steps of a plan on a GPU: enqueued on the calling thread's stream.
#pragma once

#include "backend/library.h"
#include "runtime/plan.h"

#include <span>

namespace kiln::runtime {

/// Addresses of the launch's buffers (those of Scratch are not looked at) and values of its slots. DeviceError.
void launch_on_gpu(const Launch& launch, void* const* buffers, const std::uint64_t* slots, int device);

/// Operands and results are on the device. Sorts, searches and scatters happen on the host.
void matmul_on_gpu(const backend::Matmul& call, int device);

void sort_on_gpu(const backend::Sort& call, int device);
void search_on_gpu(const backend::Search& call, int device);
void scatter_on_gpu(const backend::Scatter& call, int device);

/// Elements at any strides (none: row-major) next to each other at `to`; only enqueues.
void pack_on_gpu(std::byte* to, const std::byte* from, std::span<const std::int64_t> dims, std::span<const std::int64_t> strides,
                 DType dtype, int device);
/// A truth value, once everything enqueued before has happened. DeviceError.
bool read_on_gpu(const std::byte* truth, int device);

}  // namespace kiln::runtime
