// Elements at any strides copied next to each other, by one general kernel: for where no generated one is at
// hand.
#pragma once

#include "device/cuda/stream.h"

#include <kiln/shape.h>

#include <cstddef>
#include <cstdint>

namespace kiln::cuda {

/// Axes outermost first; strides in elements of `from`, of either sign, 0 repeats.
struct StridedCopy {
  static constexpr int kMaxAxes = kMaxRank + 2;
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  int rank = 0;
  std::int64_t extents[kMaxAxes] = {};
  std::int64_t strides[kMaxAxes] = {};
  std::int64_t count() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= extents[i];
    return n;
  }
};

/// Enqueues. `element_bytes` is 1, 2, 4 or 8. The first copy of a device compiles: CompileError, DeviceError.
void copy_strided(const StridedCopy& copy, std::int64_t element_bytes, Stream stream);

/// The kernel's CUDA C, for tests.
const char* strided_copy_source();

}  // namespace kiln::cuda
