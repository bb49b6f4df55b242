// Comparisons within a tolerance, and of whole tensors.
#include "api/record.h"
#include "support/check.h"

namespace kiln {
namespace {

using api::elementwise;
using ir::Op;

/// The dtype distances are measured in: float32 has room for float32 and halves, and of integers float64 for
/// most.
DType distance_dtype(const Tensor& x, const Operand& y) {
  const DType t = y.tensor ? promote(x.dtype(), y.tensor->dtype()) : api::weak_promote(x.dtype(), y.scalar);
  return is_narrow(t) || t == DType::Float32 ? DType::Float32 : DType::Float64;
}

Tensor both_nan(const Tensor& x, const Tensor& y) { return elementwise(Op::logical_and, isnan(x), isnan(y)); }

}  // namespace

Tensor isclose(const Tensor& x, const Operand& y, double rtol, double atol, Flag equal_nan) {
  const CallScope scope("isclose", y.loc);
  if (y.tensor) api::check_both("isclose", x, *y.tensor);
  api::checked("isclose", x);
  const DType wide = distance_dtype(x, y);
  const Tensor a = astype(x, wide);
  const Tensor b =
      y.tensor ? astype(*y.tensor, wide) : Tensor::adopt(api::scalar_node(y.scalar, wide).take());
  const Tensor distance = abs(elementwise(Op::subtract, a, b));
  const Tensor allowed = elementwise(Op::add, elementwise(Op::multiply, abs(b), Scalar(rtol)), Scalar(atol));
  // An infinite y allows every distance, and equals only itself.
  const Tensor near =
      elementwise(Op::logical_and, elementwise(Op::less_equal, distance, allowed), isfinite(b));
  const Tensor close = elementwise(Op::logical_or, near, elementwise(Op::equal, x, y));
  return equal_nan ? elementwise(Op::logical_or, close, both_nan(a, b)) : close;
}

bool allclose(const Tensor& x, const Operand& y, double rtol, double atol, Flag equal_nan) {
  const CallScope scope("allclose", y.loc);
  return all(isclose(x, y, rtol, atol, equal_nan), all_axes, false).item<bool>();
}

bool array_equal(const Tensor& x, const Tensor& y, Flag equal_nan, SourceLocation loc) {
  const CallScope scope("array_equal", loc);
  api::check_both("array_equal", x, y);
  if (x.shape() != y.shape()) return false;
  Tensor same = elementwise(Op::equal, x, y);
  if (equal_nan) same = elementwise(Op::logical_or, same, both_nan(x, y));
  return all(same, all_axes, false).item<bool>();
}

}  // namespace kiln
