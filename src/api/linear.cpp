// Systems of linear equations. The library has the lower-triangular case; every other one is a view of it.
#include "api/record.h"
#include "ir/infer.h"
#include "support/check.h"

namespace kiln {
namespace {

using api::checked;
using api::describe;
using ir::NodeRef;

std::span<const std::int64_t> batch(const ir::Node* x) { return x->dims().first(x->rank - 2u); }

Shape with_matrix(std::span<const std::int64_t> lead, std::int64_t rows, std::int64_t columns) {
  Shape out(lead);
  out.push_back(rows);
  out.push_back(columns);
  return out;
}

/// UserError unless the last two extents are equal.
ir::Node* checked_square(std::string_view op, const Tensor& x) {
  ir::Node* const node = checked(op, x);
  if (node->rank < 2 || node->dims()[node->rank - 2u] != node->dims()[node->rank - 1u])
    throw UserError(cat("[", op, "] needs square matrices, got ", describe(node)));
  return node;
}

/// A dtype that it can be computed in: bool is a UserError.
DType float_dtype(std::string_view op, DType t) {
  if (is_bool(t)) throw UserError(cat("[", op, "] is not defined for bool"));
  return is_float(t) ? computed_as(t) : DType::Float32;
}

/// a with ones on its diagonal.
Tensor with_unit_diagonal(const Tensor& a) {
  const std::int64_t n = a.dim(-1);
  const Tensor row = arange(n, std::nullopt);
  const Tensor on_diagonal = api::elementwise(ir::Op::equal, reshape(row, {n, 1}), row);
  return api::elementwise(ir::Op::where, on_diagonal, Scalar(1), a);
}

}  // namespace

Tensor cholesky(const Tensor& x, Flag upper, SourceLocation loc) {
  const CallScope scope("cholesky", loc);
  const ir::Node* const node = checked_square("cholesky", x);
  const NodeRef in = api::cast_node(x.node(), float_dtype("cholesky", node->dtype));
  auto factor = NodeRef::adopt(ir::new_node_like(ir::Op::cholesky, in->dtype, *in));
  factor->n_in = 1;
  ir::set_input(factor.get(), 0, in.get());
  const Tensor lower = api::finish(std::move(factor));
  return upper ? matrix_transpose(lower) : lower;
}

Tensor solve_triangular(const Tensor& a, const Tensor& b, Flag upper, Flag unit_diagonal,
                        SourceLocation loc) {
  const CallScope scope("solve_triangular", loc);
  api::check_both("solve_triangular", a, b);
  const ir::Node* const square = checked_square("solve_triangular", a);
  const std::int64_t n = square->dims()[square->rank - 1u];
  const bool vector = b.rank() == 1;
  const Tensor sides = vector ? reshape(b, {b.numel(), 1}) : b;
  const auto lead = sides.rank() < 2 ? std::nullopt : ir::broadcast_dims(batch(square), batch(sides.node()));
  if (!lead || sides.dim(-2) != n)
    throw UserError(cat("[solve_triangular] a ", describe(square), " does not fit b ", describe(b)));
  const DType dtype = float_dtype("solve_triangular", promote(square->dtype, b.dtype()));
  Tensor lower = astype(a, dtype), right = astype(sides, dtype);
  if (unit_diagonal) lower = with_unit_diagonal(lower);
  if (upper) {  // seen from its other end it is lower-triangular
    lower = flip(lower, {-2, -1});
    right = flip(right, -2);
  }
  const NodeRef in = api::broadcast_node(lower.node(), with_matrix(*lead, n, n)),
                known = api::broadcast_node(right.node(), with_matrix(*lead, n, sides.dim(-1)));
  auto node = NodeRef::adopt(ir::new_node_like(ir::Op::solve_triangular, dtype, *known));
  node->n_in = 2;
  ir::set_input(node.get(), 0, in.get());
  ir::set_input(node.get(), 1, known.get());
  Tensor x = api::finish(std::move(node));
  if (upper) x = flip(x, -2);
  if (!vector) return x;
  Shape rows = *lead;
  rows.push_back(n);
  return reshape(x, rows);
}

}  // namespace kiln
