// Scans: one node each.
#include "api/record.h"
#include "support/check.h"

namespace kiln {
namespace {

using ir::Op;

/// The dtype of running values of `t`.
DType dtype_of(Op op, DType t) {
  if (is_float(t) || op == Op::scan_max || op == Op::scan_min) return t;
  if (op == Op::scan_logaddexp) return DType::Float32;
  return is_unsigned_int(t) ? DType::UInt64 : DType::Int64;
}

Tensor scan(std::string_view name, Op op, const Tensor& x, std::optional<Axis> axis, bool exclusive,
            bool reverse, SourceLocation loc) {
  const CallScope scope(name, loc);
  ir::Node* const given = api::checked(name, x);
  if (!axis) return scan(name, op, x.reshape({given->numel}), 0, exclusive, reverse, loc);
  const int a = api::checked_axis(name, *axis, given);
  const ir::NodeRef values = api::cast_node(given, computed_as(dtype_of(op, given->dtype)));
  return api::finish(api::scan_node(op, values.get(), a, exclusive, reverse));
}

}  // namespace

Tensor logcumsumexp(const Tensor& x, std::optional<Axis> axis, Flag exclusive, Flag reverse,
                    SourceLocation loc) {
  return scan("logcumsumexp", Op::scan_logaddexp, x, axis, exclusive, reverse, loc);
}
Tensor cumsum(const Tensor& x, std::optional<Axis> axis, Flag exclusive, Flag reverse, SourceLocation loc) {
  return scan("cumsum", Op::scan_sum, x, axis, exclusive, reverse, loc);
}
Tensor cumprod(const Tensor& x, std::optional<Axis> axis, Flag exclusive, Flag reverse, SourceLocation loc) {
  return scan("cumprod", Op::scan_prod, x, axis, exclusive, reverse, loc);
}
Tensor cummax(const Tensor& x, std::optional<Axis> axis, Flag exclusive, Flag reverse, SourceLocation loc) {
  return scan("cummax", Op::scan_max, x, axis, exclusive, reverse, loc);
}
Tensor cummin(const Tensor& x, std::optional<Axis> axis, Flag exclusive, Flag reverse, SourceLocation loc) {
  return scan("cummin", Op::scan_min, x, axis, exclusive, reverse, loc);
}

}  // namespace kiln
