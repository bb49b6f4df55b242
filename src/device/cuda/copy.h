// Copies between host and device, and fills. Host memory that is not page-locked goes through page-locked
// staging chunks, so that the processor's copy of one and the device's copy of another overlap.
//
// All are ordered with the other work of their stream. Sizes of 0 do nothing. DeviceError.
#pragma once

#include "device/cuda/stream.h"

#include <cstddef>
#include <cstdint>

namespace kiln::cuda {

/// Returns when `from` may be changed; the device may have it later, in the stream's order.
void copy_to_device(void* to, const void* from, std::uint64_t bytes, Stream stream);
/// Returns when `to` holds the bytes. Throws what failed in the stream before.
void copy_to_host(void* to, const void* from, std::uint64_t bytes, Stream stream);
/// Only enqueues. No overlap.
void copy_on_device(void* to, const void* from, std::uint64_t bytes, Stream stream);
/// Between devices, directly where they can. Only enqueues: after what both streams hold now, and later work
/// of both waits for it.
void copy_across(void* to, Stream to_stream, const void* from, Stream from_stream, std::uint64_t bytes);
/// Repeats a pattern of 1, 2 or 4 bytes `count` times; `to` is a multiple of its size. Only enqueues.
void fill(void* to, std::uint32_t pattern, int pattern_bytes, std::uint64_t count, Stream stream);

/// Page-locked host memory held for staging.
std::uint64_t staging_bytes();

}  // namespace kiln::cuda
