// Contractions of two operands, brought to one matmul node: (b…, m, k) @ (b…, k, n) with equal batch extents.
#include "api/record.h"
#include "ir/infer.h"
#include "support/check.h"

#include <algorithm>
#include <numeric>

namespace kiln {
namespace {

using api::describe;
using api::finish;
using ir::NodeRef;

/// dims without its last two extents.
std::span<const std::int64_t> batch(const ir::Node& x) { return x.dims().first(x.rank - 2u); }

Shape with_matrix(std::span<const std::int64_t> lead, std::int64_t rows, std::int64_t columns) {
  Shape out(lead);
  out.push_back(rows);
  out.push_back(columns);
  return out;
}

std::vector<int> resolved(const Axes& axes, const ir::Node* x) {
  api::checked_axes("tensordot", axes, x);
  std::vector<int> out(axes.all() ? x->rank : std::size_t{0});
  std::iota(out.begin(), out.end(), 0);
  for (std::int64_t axis : axes.list()) out.push_back(static_cast<int>(axis < 0 ? axis + x->rank : axis));
  return out;
}

}  // namespace

namespace api {

ir::NodeRef matmul_node(ir::Node* x, ir::Node* y) {
  const std::int64_t m = x->dims()[x->rank - 2u], k = x->dims()[x->rank - 1u], n = y->dims()[y->rank - 1u];
  if (y->rank == 2 && x->rank > 2) {  // one matrix for the whole batch: its rows are one tall matrix
    const std::int64_t rows = k == 0 ? Shape(x->dims().first(x->rank - 1u)).numel() : x->numel / k;
    const NodeRef tall = reshape_node(x, Shape{rows, k});
    return reshape_node(matmul_node(tall.get(), y).get(), with_matrix(batch(*x), m, n));
  }
  const Shape lead = ir::broadcast_dims(batch(*x), batch(*y)).value();
  const NodeRef a = broadcast_node(x, with_matrix(lead, m, k));
  const NodeRef b = broadcast_node(y, with_matrix(lead, k, n));
  auto node = NodeRef::adopt(ir::new_node(ir::Op::matmul, x->dtype, with_matrix(lead, m, n)));
  node->n_in = 2;
  ir::set_input(node.get(), 0, a.get());
  ir::set_input(node.get(), 1, b.get());
  return node;
}

}  // namespace api

Tensor matmul(const Tensor& x, const Tensor& y, SourceLocation loc) {
  const CallScope scope("matmul", loc);
  api::check_both("matmul", x, y);
  ir::Node* const lhs = x.node();
  ir::Node* const rhs = y.node();
  const auto fail = [&](std::string_view what) {
    throw UserError(cat("[matmul] ", what, ": lhs ", describe(lhs), ", rhs ", describe(rhs)));
  };
  if (lhs->rank == 0 || rhs->rank == 0) fail("a scalar has no axis to contract");
  const DType dtype = computed_as(promote(lhs->dtype, rhs->dtype));
  if (is_bool(dtype)) fail("does not take bool operands");
  NodeRef a = api::cast_node(lhs, dtype), b = api::cast_node(rhs, dtype);
  if (lhs->rank == 1) a = api::reshape_node(a.get(), Shape{1, lhs->dims()[0]});
  if (rhs->rank == 1) b = api::reshape_node(b.get(), Shape{rhs->dims()[0], 1});
  if (a->dims()[a->rank - 1u] != b->dims()[b->rank - 2u]) fail("inner dimensions differ");
  if (!ir::broadcast_dims(batch(*a), batch(*b))) fail("batch dimensions do not broadcast");
  NodeRef out = api::matmul_node(a.get(), b.get());
  if (lhs->rank == 1 || rhs->rank == 1) {
    Shape dims(batch(*out));
    if (lhs->rank > 1) dims.push_back(out->dims()[out->rank - 2u]);
    if (rhs->rank > 1) dims.push_back(out->dims()[out->rank - 1u]);
    out = api::reshape_node(out.get(), dims);
  }
  return finish(std::move(out));
}

Tensor tensordot(const Tensor& x, const Tensor& y, const Axes& x_axes, const Axes& y_axes,
                 SourceLocation loc) {
  const CallScope scope("tensordot", loc);
  api::check_both("tensordot", x, y);
  ir::Node* const lhs = x.node();
  ir::Node* const rhs = y.node();
  const std::vector<int> in_x = resolved(x_axes, lhs), in_y = resolved(y_axes, rhs);
  bool good = in_x.size() == in_y.size();
  for (std::size_t i = 0; i < in_x.size() && good; ++i)
    good = lhs->dims()[static_cast<std::size_t>(in_x[i])] == rhs->dims()[static_cast<std::size_t>(in_y[i])];
  const DType dtype = computed_as(promote(lhs->dtype, rhs->dtype));
  if (!good || is_bool(dtype))
    throw UserError(cat("[tensordot] the contracted axes of ", describe(lhs), " and ", describe(rhs),
                        is_bool(dtype) ? " are bool" : " differ"));
  std::vector<int> x_order, y_order = in_y;
  Shape dims;
  std::int64_t m = 1, k = 1, n = 1;
  for (int i = 0; i < lhs->rank; ++i)
    if (std::ranges::find(in_x, i) == in_x.end()) {
      x_order.push_back(i);
      dims.push_back(lhs->dims()[static_cast<std::size_t>(i)]);
      m *= dims.back();
    }
  for (int i : in_x) {
    x_order.push_back(i);
    k *= lhs->dims()[static_cast<std::size_t>(i)];
  }
  for (int i = 0; i < rhs->rank; ++i)
    if (std::ranges::find(in_y, i) == in_y.end()) {
      y_order.push_back(i);
      dims.push_back(rhs->dims()[static_cast<std::size_t>(i)]);
      n *= dims.back();
    }
  const NodeRef a = api::permute_node(api::cast_node(lhs, dtype).get(), x_order);
  const NodeRef b = api::permute_node(api::cast_node(rhs, dtype).get(), y_order);
  const NodeRef flat_a = api::reshape_node(a.get(), Shape{m, k});
  const NodeRef flat_b = api::reshape_node(b.get(), Shape{k, n});
  const NodeRef product = api::matmul_node(flat_a.get(), flat_b.get());
  return finish(api::reshape_node(product.get(), dims));
}

Tensor tensordot(const Tensor& x, const Tensor& y, Whole axes, SourceLocation loc) {
  const CallScope scope("tensordot", loc);
  api::check_both("tensordot", x, y);
  const ir::Node* lhs = x.node();
  const ir::Node* rhs = y.node();
  if (axes < 0 || axes > lhs->rank || axes > rhs->rank)
    throw UserError(cat("[tensordot] ", axes, " axes of ", describe(lhs), " and ", describe(rhs)));
  std::vector<int> last, first;
  const int count = static_cast<int>(axes);
  for (int i = 0; i < count; ++i) {
    last.push_back(lhs->rank - count + i);
    first.push_back(i);
  }
  return tensordot(x, y, Axes(last), Axes(first));
}

Tensor outer(const Tensor& x, const Tensor& y, SourceLocation loc) {
  const CallScope scope("outer", loc);
  api::check_both("outer", x, y);
  const ir::Node* lhs = x.node();
  const ir::Node* rhs = y.node();
  if (lhs->rank != 1 || rhs->rank != 1)
    throw UserError(cat("[outer] needs two vectors, got ", describe(lhs), " and ", describe(rhs)));
  return multiply(expand_dims(x, -1), Operand(y));
}

Tensor vecdot(const Tensor& x, const Tensor& y, Axis given, SourceLocation loc) {
  const CallScope scope("vecdot", loc);
  api::check_both("vecdot", x, y);
  const ir::Node* lhs = x.node();
  const ir::Node* rhs = y.node();
  // The axis counts from the back in both, so that leading axes may broadcast.
  std::int64_t axis = given.value();
  if (axis >= 0)
    axis = api::checked_axis("vecdot", given, lhs->rank >= rhs->rank ? lhs : rhs) -
           std::max<int>(lhs->rank, rhs->rank);
  const int in_x = api::checked_axis("vecdot", axis, lhs), in_y = api::checked_axis("vecdot", axis, rhs);
  if (lhs->dims()[static_cast<std::size_t>(in_x)] != rhs->dims()[static_cast<std::size_t>(in_y)])
    throw UserError(
        cat("[vecdot] extents along axis ", axis, " differ: ", describe(lhs), " and ", describe(rhs)));
  const Tensor product = multiply(x, Operand(y));
  const std::int64_t at = product.rank() + axis;
  return finish(
      api::reduce_node(ir::Op::reduce_sum, product.node(), std::uint64_t{1} << at, product.dtype(), false));
}

}  // namespace kiln
