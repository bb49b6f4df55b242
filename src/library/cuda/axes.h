// Axes as kernels_templates/elements.cuh takes them.
#pragma once

#include "library/library.h"

#include <cstdint>

namespace kiln::cuda {

/// The kernels' Axes.
struct Axes {
  std::int32_t rank = 0;
  std::int64_t dims[kMaxRank] = {}, strides[kMaxRank] = {};
};
static_assert(kMaxRank == 16 && sizeof(Axes) == 8 * 33);

inline std::int64_t count_of(const library::Array& a) {
  std::int64_t n = 1;
  for (int axis = 0; axis < a.rank; ++axis) n *= a.dims[axis];
  return n;
}

/// The array's axes but `skip`, as few as do: those of one element left out, neighbours joined where strides
/// allow.
inline Axes joined_axes(const library::Array& a, int skip = -1) {
  Axes out;
  for (int axis = 0; axis < a.rank; ++axis) {
    if (axis == skip || a.dims[axis] == 1) continue;
    const int last = out.rank - 1;
    if (last >= 0 && out.strides[last] == a.strides[axis] * a.dims[axis]) {
      out.dims[last] *= a.dims[axis];
      out.strides[last] = a.strides[axis];
      continue;
    }
    out.dims[out.rank] = a.dims[axis];
    out.strides[out.rank++] = a.strides[axis];
  }
  return out;
}

}  // namespace kiln::cuda
