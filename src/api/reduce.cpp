// Reductions. The node keeps its axes as extents of 1; a reshape drops them. What has no primitive (mean,
// var) is a composition, which the planner makes one kernel.
#include "api/record.h"
#include "support/check.h"

#include <algorithm>

namespace kiln {
namespace {

using api::checked;
using api::elementwise;
using api::finish;
using ir::NodeRef;
using ir::Op;

struct Call {
  ir::Node* x;
  std::uint64_t mask;
  std::int64_t count;  // elements that make one result
};

Call prepare(std::string_view op, const Tensor& x, const Axes& axes) {
  Call call{checked(op, x), 0, 1};
  call.mask = api::checked_axes(op, axes, call.x);
  for (int i = 0; i < call.x->rank; ++i)
    if ((call.mask >> i) & 1) call.count *= call.x->dims()[static_cast<std::size_t>(i)];
  return call;
}

void require_elements(std::string_view op, const Call& call) {
  if (call.count == 0)
    throw UserError(cat("[", op, "] no elements to choose from in ", api::describe(call.x)));
}

/// The dtype sums and products of integers are kept in.
DType sum_dtype(DType t) {
  if (is_float(t)) return t;
  return is_unsigned_int(t) ? DType::UInt64 : DType::Int64;
}

/// Halves are averaged in float32: a float16 sum overflows long before its mean does.
DType mean_dtype(DType t) { return is_float(t) && !is_narrow(t) ? t : DType::Float32; }
DType float_dtype(DType t) { return is_float(t) ? computed_as(t) : DType::Float32; }

Tensor extreme(std::string_view name, Op op, const Tensor& x, const Axes& axes, bool keepdims,
               SourceLocation loc) {
  const CallScope scope(name, loc);
  const Call call = prepare(name, x, axes);
  require_elements(name, call);
  return finish(api::reduce_node(op, call.x, call.mask, call.x->dtype, keepdims));
}

/// any and all.
Tensor decided(std::string_view name, Op op, const Tensor& x, const Axes& axes, bool keepdims,
               SourceLocation loc) {
  const CallScope scope(name, loc);
  const Call call = prepare(name, x, axes);
  return finish(api::reduce_node(op, call.x, call.mask, DType::Bool, keepdims));
}

Tensor position(std::string_view name, Op op, const Tensor& x, std::optional<Axis> axis, bool keepdims,
                SourceLocation loc) {
  const CallScope scope(name, loc);
  const Call call = prepare(name, x, axis ? Axes(*axis) : all_axes);
  require_elements(name, call);
  const NodeRef comparable =
      is_bool(call.x->dtype) ? api::cast_node(call.x, DType::UInt8) : NodeRef::share(call.x);
  return finish(api::reduce_node(op, comparable.get(), call.mask, DType::Int64, keepdims));
}

Tensor drop(const Tensor& x, std::uint64_t mask, bool keepdims) {
  if (keepdims) return x;
  Shape dims;
  for (int i = 0; i < x.rank(); ++i)
    if (!((mask >> i) & 1)) dims.push_back(x.node()->dims()[static_cast<std::size_t>(i)]);
  return Tensor::adopt(api::reshape_node(x.node(), dims).take());
}

/// Mean of the float tensor x with its axes kept.
Tensor mean_kept(const Tensor& x, const Call& call) {
  const Tensor total = finish(api::reduce_node(Op::reduce_sum, x.node(), call.mask, x.dtype(), true));
  return elementwise(Op::divide, total, Scalar(static_cast<double>(call.count)));
}

Tensor var_kept(const Tensor& x, const Call& call, double correction) {
  const Tensor centred = elementwise(Op::subtract, x, mean_kept(x, call));
  const Tensor squares = elementwise(Op::multiply, centred, centred);
  const Tensor total = finish(api::reduce_node(Op::reduce_sum, squares.node(), call.mask, x.dtype(), true));
  return elementwise(Op::divide, total, Scalar(std::max(static_cast<double>(call.count) - correction, 0.0)));
}

Tensor deviation(std::string_view name, const Tensor& x, const Axes& axes, bool keepdims, double correction,
                 SourceLocation loc) {
  const CallScope scope(name, loc);
  const Call call = prepare(name, x, axes);
  const Tensor values = astype(x, mean_dtype(x.dtype()));
  const Tensor root = elementwise(Op::sqrt, var_kept(values, call, correction));
  return astype(drop(root, call.mask, keepdims), float_dtype(x.dtype()));
}

}  // namespace

Tensor sum(const Tensor& x, const Axes& axes, Flag keepdims, SourceLocation loc) {
  const CallScope scope("sum", loc);
  const Call call = prepare("sum", x, axes);
  return finish(api::reduce_node(Op::reduce_sum, call.x, call.mask, sum_dtype(call.x->dtype), keepdims));
}
Tensor prod(const Tensor& x, const Axes& axes, Flag keepdims, SourceLocation loc) {
  const CallScope scope("prod", loc);
  const Call call = prepare("prod", x, axes);
  return finish(api::reduce_node(Op::reduce_prod, call.x, call.mask, sum_dtype(call.x->dtype), keepdims));
}
Tensor max(const Tensor& x, const Axes& axes, Flag keepdims, SourceLocation loc) {
  return extreme("max", Op::reduce_max, x, axes, keepdims, loc);
}
Tensor min(const Tensor& x, const Axes& axes, Flag keepdims, SourceLocation loc) {
  return extreme("min", Op::reduce_min, x, axes, keepdims, loc);
}
Tensor any(const Tensor& x, const Axes& axes, Flag keepdims, SourceLocation loc) {
  return decided("any", Op::reduce_max, x, axes, keepdims, loc);
}
Tensor all(const Tensor& x, const Axes& axes, Flag keepdims, SourceLocation loc) {
  return decided("all", Op::reduce_min, x, axes, keepdims, loc);
}
Tensor count_nonzero(const Tensor& x, const Axes& axes, Flag keepdims, SourceLocation loc) {
  const CallScope scope("count_nonzero", loc);
  prepare("count_nonzero", x, axes);  // an error gives x's dtype, not bool
  return sum(astype(x, DType::Bool), axes, keepdims);
}
Tensor argmax(const Tensor& x, std::optional<Axis> axis, Flag keepdims, SourceLocation loc) {
  return position("argmax", Op::reduce_argmax, x, axis, keepdims, loc);
}
Tensor argmin(const Tensor& x, std::optional<Axis> axis, Flag keepdims, SourceLocation loc) {
  return position("argmin", Op::reduce_argmin, x, axis, keepdims, loc);
}

Tensor mean(const Tensor& x, const Axes& axes, Flag keepdims, SourceLocation loc) {
  const CallScope scope("mean", loc);
  const Call call = prepare("mean", x, axes);
  const Tensor values = astype(x, mean_dtype(x.dtype()));
  return astype(drop(mean_kept(values, call), call.mask, keepdims), float_dtype(x.dtype()));
}
Tensor var(const Tensor& x, const Axes& axes, Flag keepdims, double correction, SourceLocation loc) {
  const CallScope scope("var", loc);
  const Call call = prepare("var", x, axes);
  const Tensor values = astype(x, mean_dtype(x.dtype()));
  return astype(drop(var_kept(values, call, correction), call.mask, keepdims), float_dtype(x.dtype()));
}
Tensor std(const Tensor& x, const Axes& axes, Flag keepdims, double correction, SourceLocation loc) {
  return deviation("std", x, axes, keepdims, correction, loc);
}
Tensor stddev(const Tensor& x, const Axes& axes, Flag keepdims, double correction, SourceLocation loc) {
  return deviation("stddev", x, axes, keepdims, correction, loc);
}

Tensor logsumexp(const Tensor& x, const Axes& axes, Flag keepdims, SourceLocation loc) {
  const CallScope scope("logsumexp", loc);
  const Call call = prepare("logsumexp", x, axes);
  const Tensor values = astype(x, mean_dtype(x.dtype()));
  const Tensor out =
      finish(api::reduce_node(Op::reduce_logaddexp, values.node(), call.mask, values.dtype(), keepdims));
  return astype(out, float_dtype(x.dtype()));
}

}  // namespace kiln
