// Inputs of tests and benchmarks.
#pragma once

#include <kiln/kiln.h>

#include <cstddef>
#include <vector>

namespace kiln::test {

/// Values between -1 and 1 in memory.
inline Tensor data(const Shape& shape, DType dtype = DType::Float32, int seed = 0) {
  std::vector<float> v(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < v.size(); ++i)
    v[i] = static_cast<float>((i * 7919 + static_cast<std::size_t>(seed) * 104729) % 2003) / 1001.5f - 1;
  Tensor t = Tensor::from(v, shape).astype(dtype);
  t.eval();
  return t;
}

}  // namespace kiln::test
