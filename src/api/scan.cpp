// Scans: one node each, with flips around it for those from the end.
#include "api/record.h"
#include "support/check.h"

#include <cmath>

namespace kiln {
namespace {

using ir::Op;

/// The dtype sums and products of integers are kept in.
DType sum_dtype(DType t) {
  if (is_float(t)) return t;
  return is_unsigned_int(t) ? DType::UInt64 : DType::Int64;
}

Tensor scan(std::string_view name, Op op, const Tensor& x, std::optional<int> axis, bool exclusive, bool reverse,
            SourceLocation loc) {
  ir::Node* const given = api::checked(name, x);
  const bool adds = op == Op::scan_sum || op == Op::scan_prod;
  if (!axis) return scan(name, op, x.reshape({given->numel}, loc), 0, exclusive, reverse, loc);
  const int a = api::checked_axis(name, *axis, given->dims());
  const Tensor from = reverse ? flip(x, a, loc) : x;
  const ir::NodeRef values = api::cast_node(from.node(), adds ? sum_dtype(given->dtype) : given->dtype, loc);
  const Tensor out = api::finish(api::scan_node(op, values.get(), a, exclusive, loc));
  return reverse ? flip(out, a, loc) : out;
}

/// The sum of exponentials so far is kept relative to the greatest value so far, as sum · exp(reference).
Tensor log_sums(const Tensor& x, int axis, bool exclusive, bool reverse, SourceLocation loc) {
  const DType type = x.dtype();
  const double inf = HUGE_VAL;
  Shape row;
  for (int a = 0; a < x.rank(); ++a)
    if (a != axis) row.push_back(x.dim(a));
  const auto reference_of = [&](const Tensor& greatest) {
    return where(isfinite(greatest, loc), greatest, Operand(0.0, loc));
  };
  const auto step = [&](const Tensors& carry, const Tensors& in) {
    const Tensor &greatest = carry[0], &sum = carry[1], &value = in[0];
    const Tensor next = maximum(greatest, Operand(value, loc));
    const Tensor before = reference_of(greatest), after = reference_of(next);
    const Tensor kept = where(greatest == Operand(-inf, loc), Operand(0.0, loc), Operand(exp(before - Operand(after, loc), loc), loc));
    const Tensor total = sum * Operand(kept, loc) + Operand(exp(value - Operand(after, loc), loc), loc);
    return Scanned{{next, total}, {exclusive ? before + Operand(log(sum, loc), loc) : after + Operand(log(total, loc), loc)}};
  };
  return kiln::scan(step, {full(row, -inf, type, loc), zeros(row, type, loc)}, {x}, axis, reverse, loc).ys[0];
}

}  // namespace

Tensor logcumsumexp(const Tensor& x, std::optional<int> axis, bool exclusive, bool reverse, SourceLocation loc) {
  const ir::Node* const given = api::checked("logcumsumexp", x);
  if (!axis) return logcumsumexp(x.reshape({given->numel}, loc), 0, exclusive, reverse, loc);
  const int a = api::checked_axis("logcumsumexp", *axis, given->dims());
  const DType result = is_float(given->dtype) ? given->dtype : DType::Float32;
  const DType kept = is_half(result) ? DType::Float32 : result;
  return log_sums(x.astype(kept, loc), a, exclusive, reverse, loc).astype(result, loc);
}

Tensor cumsum(const Tensor& x, std::optional<int> axis, bool exclusive, bool reverse, SourceLocation loc) {
  return scan("cumsum", Op::scan_sum, x, axis, exclusive, reverse, loc);
}
Tensor cumprod(const Tensor& x, std::optional<int> axis, bool exclusive, bool reverse, SourceLocation loc) {
  return scan("cumprod", Op::scan_prod, x, axis, exclusive, reverse, loc);
}
Tensor cummax(const Tensor& x, std::optional<int> axis, bool exclusive, bool reverse, SourceLocation loc) {
  return scan("cummax", Op::scan_max, x, axis, exclusive, reverse, loc);
}
Tensor cummin(const Tensor& x, std::optional<int> axis, bool exclusive, bool reverse, SourceLocation loc) {
  return scan("cummin", Op::scan_min, x, axis, exclusive, reverse, loc);
}

}  // namespace kiln
