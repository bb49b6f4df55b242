// What tests of attention and of its gradient write alike.
#pragma once

#include <kiln/kiln.h>

#include <cmath>
#include <cstdint>

namespace kiln::test {

/// The number of each row, (n, 1), and of each column, (1, n).
inline Tensor rows(std::int64_t n) { return arange(n).reshape({n, 1}); }
inline Tensor columns(std::int64_t n) { return arange(n).reshape({1, n}); }
/// q kᵀ / √depth.
inline Tensor scores(const Tensor& q, const Tensor& k) {
  return matmul(q, matrix_transpose(k)) * (1 / std::sqrt(static_cast<double>(q.dim(-1))));
}

}  // namespace kiln::test
