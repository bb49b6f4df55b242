// Derivatives of matrix products, Cholesky factors and triangular systems.
//
// The Cholesky rule is Murray's (Differentiation of the Cholesky decomposition, 2016). Operands count by the
// elements that the operation reads: of a symmetric matrix those on and below the diagonal.
#include "grad/rules.h"
#include "ir/infer.h"

namespace kiln::diff {
namespace {

using api::finish;
using ir::NodeRef;

Tensor product(const Tensor& x, const Tensor& y) { return finish(api::matmul_node(x.node(), y.node())); }

/// x at and below the diagonal, the diagonal halved.
Tensor lower_half(const Tensor& x) { return (tril(x) + tril(x, -1)) * 0.5; }

/// lᵀ solved from the left: x with lᵀ x = b.
Tensor solve_transposed(const Tensor& l, const Tensor& b) {
  return solve_triangular(matrix_transpose(l), b, true);
}

}  // namespace

void pull_matmul(const Step& s, const Tensor& g, std::span<Tensor> to) {
  if (s.wants(0)) to[0] = product(g, matrix_transpose(s.in(1)));
  if (s.wants(1)) to[1] = product(matrix_transpose(s.in(0)), g);
}
Tensor push_matmul(const Step& s, std::span<const Tensor> t) {
  Tensor all;
  if (t[0].valid()) add_to(all, product(t[0], s.in(1)));
  if (t[1].valid()) add_to(all, product(s.in(0), t[1]));
  return all;
}

void pull_cholesky(const Step& s, const Tensor& g, std::span<Tensor> to) {
  const Tensor l = s.result();
  const Tensor middle = lower_half(product(matrix_transpose(l), tril(g)));
  const Tensor left = solve_transposed(l, middle);                                    // l^-T P
  const Tensor full = matrix_transpose(solve_transposed(l, matrix_transpose(left)));  // l^-T P l^-1
  to[0] = lower_half(full + matrix_transpose(full));
}
Tensor push_cholesky(const Step& s, std::span<const Tensor> t) {
  const Tensor l = s.result();
  const Tensor symmetric = tril(t[0]) + matrix_transpose(tril(t[0], -1));
  const Tensor left = solve_triangular(l, symmetric);
  const Tensor both = matrix_transpose(solve_triangular(l, matrix_transpose(left)));
  return product(l, lower_half(both));
}

void pull_solve_triangular(const Step& s, const Tensor& g, std::span<Tensor> to) {
  const Tensor right = solve_transposed(s.in(0), g);
  if (s.wants(1)) to[1] = right;
  if (s.wants(0)) to[0] = -tril(product(right, matrix_transpose(s.result())));
}
Tensor push_solve_triangular(const Step& s, std::span<const Tensor> t) {
  Tensor right = t[1];
  if (t[0].valid()) {
    const Tensor moved = product(tril(t[0]), s.result());
    right = right.valid() ? right - moved : -moved;
  }
  return solve_triangular(s.in(0), right);
}

}  // namespace kiln::diff
