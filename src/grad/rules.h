// The rules of single operations, by what they do. rules.cpp lists which operation has which.
#pragma once

#include "grad/step.h"

namespace kiln::diff {

#define KILN_DECLARE_RULE(Name)                                           \
  void pull_##Name(const Step& s, const Tensor& g, std::span<Tensor> to); \
  Tensor push_##Name(const Step& s, std::span<const Tensor> t);

// views.cpp
KILN_DECLARE_RULE(cast)
KILN_DECLARE_RULE(alias)
KILN_DECLARE_RULE(reshape)
KILN_DECLARE_RULE(permute)
KILN_DECLARE_RULE(broadcast)
KILN_DECLARE_RULE(slice)
KILN_DECLARE_RULE(pad)
KILN_DECLARE_RULE(join)
KILN_DECLARE_RULE(slice_at)
KILN_DECLARE_RULE(update_at)
KILN_DECLARE_RULE(sliding_window)
// folds.cpp
KILN_DECLARE_RULE(sum)
KILN_DECLARE_RULE(prod)
KILN_DECLARE_RULE(extreme)
KILN_DECLARE_RULE(logaddexp)
KILN_DECLARE_RULE(scan_sum)
KILN_DECLARE_RULE(scan_prod)
KILN_DECLARE_RULE(scan_extreme)
KILN_DECLARE_RULE(scan_logaddexp)
// indices.cpp
KILN_DECLARE_RULE(gather)
KILN_DECLARE_RULE(scatter)
KILN_DECLARE_RULE(sort)
KILN_DECLARE_RULE(sorted_values)
// matrices.cpp
KILN_DECLARE_RULE(matmul)
KILN_DECLARE_RULE(cholesky)
KILN_DECLARE_RULE(solve_triangular)

#undef KILN_DECLARE_RULE

/// The derivative of digamma, for elementwise.def; and the slopes of activations that are long.
Tensor trigamma(const Tensor& x);
Tensor gelu_tanh_slope(const Tensor& x);
Tensor silu_slope(const Tensor& x);
Tensor mish_slope(const Tensor& x);

}  // namespace kiln::diff
