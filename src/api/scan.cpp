// Scans: one node each, with flips around it for those from the end.
#include "api/record.h"
#include "support/check.h"

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

}  // namespace

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
