// Creation: scalars broadcast and functions of the index (iota). Nothing here owns memory.
#include "api/record.h"
#include "support/check.h"

#include <algorithm>
#include <cmath>

namespace kiln {
namespace {

using api::elementwise;
using api::finish;
using ir::NodeRef;
using ir::Op;

/// The device of a new tensor, if one is given.
std::optional<Device> checked_device(const TensorOptions& options) {
  if (options.device) {
    const int most = ir::most_devices(options.device->kind);
    if (options.device->index >= most)
      throw UserError(cat("[device] ", options.device->str(), " is beyond the ", most,
                          " devices of its kind that Kiln can name"));
  }
  return options.device;
}

Tensor filled(std::string_view op, const Shape& shape, Scalar value, DType dtype,
              const TensorOptions& options, SourceLocation loc) {
  const CallScope scope(op, loc);
  for (std::int64_t extent : shape)
    if (extent < 0) throw UserError(cat("[", op, "] negative extent in shape ", shape.str()));
  const NodeRef number = api::scalar_node(value, dtype, checked_device(options));
  return finish(api::broadcast_node(number.get(), shape));
}

Tensor filled_like(std::string_view op, const Tensor& x, Scalar value, const TensorOptions& options,
                   SourceLocation loc) {
  const CallScope scope(op, loc);
  const ir::Node* node = api::checked(op, x);
  return filled(op, node->shape(), value, options.dtype.value_or(node->dtype), options, loc);
}

Tensor iota(const Shape& dims, int axis, DType dtype, const TensorOptions& options = {}) {
  return Tensor::adopt(api::iota_node(dims, axis, dtype, checked_device(options)).take());
}

/// The dtype in which positions and parameters of arange and linspace meet: wide enough for either.
DType range_dtype(DType result) {
  if (is_narrow(result)) return DType::Float32;
  return is_bool(result) ? DType::Int64 : result;
}

bool fractional(Scalar s) { return s.kind == Scalar::Kind::Float; }

/// The number itself: differences of any two fit.
__int128 whole(Scalar s) {
  return s.kind == Scalar::Kind::UInt ? __int128{static_cast<std::uint64_t>(s.i)} : __int128{s.i};
}

/// ceil((stop - start) / step), at least 0; -1: not a count.
std::int64_t range_count(Scalar start, Scalar stop, Scalar step) {
  if (!fractional(start) && !fractional(stop) && !fractional(step)) {
    const __int128 span = whole(stop) - whole(start), stride = whole(step);
    if (stride < 0 ? span >= 0 : span <= 0) return 0;
    const __int128 count = (span - (stride < 0 ? -1 : 1)) / stride + 1;
    return count > INT64_MAX ? -1 : static_cast<std::int64_t>(count);
  }
  const double count = std::ceil((stop.to_double() - start.to_double()) / step.to_double());
  if (count != count || count >= 0x1p63) return -1;
  return count <= 0 ? 0 : static_cast<std::int64_t>(count);
}

Tensor triangle(std::string_view op, Op compare, const Tensor& x, std::int64_t k, SourceLocation loc) {
  const CallScope scope(op, loc);
  const ir::Node* node = api::checked(op, x);
  if (node->rank < 2) throw UserError(cat("[", op, "] needs two axes, got ", api::describe(node)));
  const std::int64_t rows = node->dims()[node->rank - 2u], columns = node->dims()[node->rank - 1u];
  k = std::clamp(k, -rows, columns);  // beyond either corner nothing changes, but row + k would overflow
  const Tensor row = elementwise(Op::add, iota({rows, 1}, 0, DType::Int64), Scalar(k));
  const Tensor keep = elementwise(compare, iota({columns}, 0, DType::Int64), row);
  return elementwise(Op::where, keep, x, Scalar(false));
}

}  // namespace

Tensor zeros(const Shape& shape, const TensorOptions& options, SourceLocation loc) {
  return filled("zeros", shape, 0, options.dtype.value_or(DType::Float32), options, loc);
}
Tensor ones(const Shape& shape, const TensorOptions& options, SourceLocation loc) {
  return filled("ones", shape, 1, options.dtype.value_or(DType::Float32), options, loc);
}
Tensor full(const Shape& shape, Scalar value, const TensorOptions& options, SourceLocation loc) {
  return filled("full", shape, value, options.dtype.value_or(api::default_dtype(value)), options, loc);
}
Tensor full_like(const Tensor& x, Scalar value, const TensorOptions& options, SourceLocation loc) {
  return filled_like("full_like", x, value, options, loc);
}
Tensor zeros_like(const Tensor& x, const TensorOptions& options, SourceLocation loc) {
  return filled_like("zeros_like", x, false, options, loc);
}
Tensor ones_like(const Tensor& x, const TensorOptions& options, SourceLocation loc) {
  return filled_like("ones_like", x, true, options, loc);
}

Tensor arange(Scalar stop, const TensorOptions& options, SourceLocation loc) {
  const CallScope scope("arange", loc);
  const DType result = options.dtype.value_or(fractional(stop) ? DType::Float32 : DType::Int64);
  const std::int64_t count = range_count(0, stop, 1);
  if (count < 0) throw UserError(cat("[arange] a range to ", api::describe(stop)));
  const DType inner = range_dtype(result);
  const NodeRef positions = api::iota_node(Shape{count}, 0, inner, checked_device(options));
  return finish(api::cast_node(positions.get(), result));
}

Tensor arange(Scalar start, Scalar stop, Scalar step, const TensorOptions& options, SourceLocation loc) {
  const CallScope scope("arange", loc);
  const bool any_fractional = fractional(start) || fractional(stop) || fractional(step);
  const bool large = start.kind == Scalar::Kind::UInt || stop.kind == Scalar::Kind::UInt;
  const DType result = options.dtype.value_or(any_fractional ? DType::Float32
                                              : large        ? DType::UInt64
                                                             : DType::Int64);
  const std::int64_t count = step.to_double() == 0 ? -1 : range_count(start, stop, step);
  if (count < 0)
    throw UserError(cat("[arange] a range from ", api::describe(start), " to ", api::describe(stop), " by ",
                        api::describe(step)));
  // A fractional step needs floating point even when whole numbers are wanted.
  const DType inner = any_fractional && !is_float(result) ? DType::Float64 : range_dtype(result);
  const Tensor steps = elementwise(Op::multiply, iota({count}, 0, inner, options), step);
  return astype(elementwise(Op::add, steps, start), result);
}

Tensor linspace(Scalar start, Scalar stop, Whole numbers, Flag endpoint, const TensorOptions& options,
                SourceLocation loc) {
  const CallScope scope("linspace", loc);
  const std::int64_t count = numbers;
  const DType dtype = options.dtype.value_or(DType::Float32);
  if (count < 0) throw UserError(cat("[linspace] ", count, " numbers"));
  const double first = start.to_double(), last = stop.to_double();
  const double parts = static_cast<double>(endpoint ? count - 1 : count);
  const double step = parts > 0 ? (last - first) / parts : 0;
  const DType inner = is_float(dtype) ? range_dtype(dtype) : DType::Float64;
  const Tensor at = iota({count}, 0, inner, options);
  Tensor out = elementwise(Op::add, elementwise(Op::multiply, at, Scalar(step)), Scalar(first));
  if (endpoint && count > 1) {  // rounding may miss stop
    const Tensor inside = elementwise(Op::less, at, Scalar(parts));
    out = elementwise(Op::where, inside, out, Scalar(last));
  }
  return astype(out, dtype);
}

Tensor eye(Whole height, Whole width, Whole diagonal, const TensorOptions& options, SourceLocation loc) {
  const CallScope scope("eye", loc);
  const std::int64_t rows = height, columns = width < 0 ? height : width;
  if (rows < 0) throw UserError(cat("[eye] ", rows, " rows"));
  const std::int64_t k = std::clamp<std::int64_t>(diagonal, -rows, columns);
  const Tensor row = elementwise(Op::add, iota({rows, 1}, 0, DType::Int64, options), Scalar(k));
  const Tensor one = elementwise(Op::equal, iota({columns}, 0, DType::Int64, options), row);
  return astype(one, options.dtype.value_or(DType::Float32));
}

Tensor tril(const Tensor& x, Whole k, SourceLocation loc) {
  return triangle("tril", Op::less_equal, x, k, loc);
}
Tensor triu(const Tensor& x, Whole k, SourceLocation loc) {
  return triangle("triu", Op::greater_equal, x, k, loc);
}

Tensor one_hot(const Tensor& indices, Whole classes, DType dtype, SourceLocation loc) {
  const CallScope scope("one_hot", loc);
  const ir::Node* node = api::checked("one_hot", indices);
  if (!is_int(node->dtype))
    throw UserError(cat("[one_hot] needs integer indices, got ", api::describe(node)));
  if (classes < 0) throw UserError(cat("[one_hot] ", classes, " classes"));
  const Tensor column = expand_dims(astype(indices, DType::Int64), -1);
  return astype(elementwise(Op::equal, column, iota({classes}, 0, DType::Int64)), dtype);
}

}  // namespace kiln
