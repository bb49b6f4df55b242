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

DType default_dtype(Scalar s) {
  switch (s.kind) {
    case Scalar::Kind::Bool: return DType::Bool;
    case Scalar::Kind::Int: return DType::Int64;
    case Scalar::Kind::Float: return DType::Float32;
  }
  return DType::Float32;
}

Tensor filled(std::string_view op, const Shape& shape, Scalar value, DType dtype, SourceLocation loc) {
  for (std::int64_t extent : shape)
    if (extent < 0) throw UserError(cat("[", op, "] negative extent in shape ", shape.str()));
  const NodeRef number = api::scalar_node(value, dtype, loc);
  return finish(api::broadcast_node(number.get(), shape, loc));
}

Tensor iota(const Shape& dims, int axis, DType dtype, SourceLocation loc) {
  return Tensor::adopt(api::iota_node(dims, axis, dtype, loc).take());
}

/// The dtype in which positions and parameters of arange and linspace meet: wide enough for either.
DType range_dtype(DType result) {
  if (is_half(result)) return DType::Float32;
  return is_bool(result) ? DType::Int64 : result;
}

/// ceil((stop - start) / step), at least 0.
std::int64_t range_count(Scalar start, Scalar stop, Scalar step) {
  const bool whole = start.kind != Scalar::Kind::Float && stop.kind != Scalar::Kind::Float &&
                     step.kind != Scalar::Kind::Float;
  if (whole) {
    const bool back = step.i < 0;
    if (back ? stop.i >= start.i : stop.i <= start.i) return 0;
    const std::uint64_t span = back ? static_cast<std::uint64_t>(start.i) - static_cast<std::uint64_t>(stop.i)
                                    : static_cast<std::uint64_t>(stop.i) - static_cast<std::uint64_t>(start.i);
    const std::uint64_t stride = back ? 0 - static_cast<std::uint64_t>(step.i) : static_cast<std::uint64_t>(step.i);
    const std::uint64_t count = (span - 1) / stride + 1;
    return count > static_cast<std::uint64_t>(INT64_MAX) ? -1 : static_cast<std::int64_t>(count);
  }
  const double count = std::ceil((stop.to_double() - start.to_double()) / step.to_double());
  if (count != count || count >= 0x1p63) return -1;
  return count <= 0 ? 0 : static_cast<std::int64_t>(count);
}

Tensor triangle(std::string_view op, Op compare, const Tensor& x, std::int64_t k, SourceLocation loc) {
  const ir::Node* node = api::checked(op, x);
  if (node->rank < 2) throw UserError(cat("[", op, "] needs two axes, got ", api::describe(node)));
  const std::int64_t rows = node->dims()[node->rank - 2u], columns = node->dims()[node->rank - 1u];
  const Tensor row = elementwise(Op::add, iota({rows, 1}, 0, DType::Int64, loc), Scalar(k), loc);
  const Tensor keep = elementwise(compare, iota({columns}, 0, DType::Int64, loc), row, loc);
  return elementwise(Op::where, keep, x, Scalar(false), loc);
}

}  // namespace

Tensor zeros(const Shape& shape, DType dtype, SourceLocation loc) { return filled("zeros", shape, 0, dtype, loc); }
Tensor ones(const Shape& shape, DType dtype, SourceLocation loc) { return filled("ones", shape, 1, dtype, loc); }
Tensor full(const Shape& shape, Scalar value, std::optional<DType> dtype, SourceLocation loc) {
  return filled("full", shape, value, dtype.value_or(default_dtype(value)), loc);
}
Tensor full_like(const Tensor& x, Scalar value, std::optional<DType> dtype, SourceLocation loc) {
  const ir::Node* node = api::checked("full_like", x);
  return filled("full_like", node->shape(), value, dtype.value_or(node->dtype), loc);
}
Tensor zeros_like(const Tensor& x, std::optional<DType> dtype, SourceLocation loc) {
  return full_like(x, false, dtype, loc);
}
Tensor ones_like(const Tensor& x, std::optional<DType> dtype, SourceLocation loc) {
  return full_like(x, true, dtype, loc);
}

Tensor arange(Scalar stop, std::optional<DType> dtype, SourceLocation loc) {
  const DType result = dtype.value_or(stop.kind == Scalar::Kind::Float ? DType::Float32 : DType::Int64);
  const std::int64_t count = range_count(0, stop, 1);
  if (count < 0) throw UserError(cat("[arange] a range to ", stop.to_double()));
  const DType inner = range_dtype(result);
  const NodeRef positions = api::iota_node(Shape{count}, 0, inner, loc);
  return finish(api::cast_node(positions.get(), result, loc));
}

Tensor arange(Scalar start, Scalar stop, Scalar step, std::optional<DType> dtype, SourceLocation loc) {
  const bool fractional = start.kind == Scalar::Kind::Float || stop.kind == Scalar::Kind::Float ||
                          step.kind == Scalar::Kind::Float;
  const DType result = dtype.value_or(fractional ? DType::Float32 : DType::Int64);
  const std::int64_t count = step.to_double() == 0 ? -1 : range_count(start, stop, step);
  if (count < 0)
    throw UserError(cat("[arange] a range from ", start.to_double(), " to ", stop.to_double(), " by ",
                        step.to_double()));
  // A fractional step needs floating point even when whole numbers are wanted.
  const DType inner = fractional && !is_float(result) ? DType::Float64 : range_dtype(result);
  const Tensor steps = elementwise(Op::multiply, iota({count}, 0, inner, loc), step, loc);
  return astype(elementwise(Op::add, steps, start, loc), result, loc);
}

Tensor linspace(Scalar start, Scalar stop, std::int64_t count, bool endpoint, DType dtype, SourceLocation loc) {
  if (count < 0) throw UserError(cat("[linspace] ", count, " numbers"));
  const double first = start.to_double(), last = stop.to_double();
  const double parts = static_cast<double>(endpoint ? count - 1 : count);
  const double step = parts > 0 ? (last - first) / parts : 0;
  const DType inner = is_float(dtype) ? range_dtype(dtype) : DType::Float64;
  const Tensor at = iota({count}, 0, inner, loc);
  Tensor out = elementwise(Op::add, elementwise(Op::multiply, at, Scalar(step), loc), Scalar(first), loc);
  if (endpoint && count > 1) {  // rounding may miss stop
    const Tensor inside = elementwise(Op::less, at, Scalar(parts), loc);
    out = elementwise(Op::where, inside, out, Scalar(last), loc);
  }
  return astype(out, dtype, loc);
}

Tensor eye(std::int64_t rows, std::int64_t columns, std::int64_t k, DType dtype, SourceLocation loc) {
  if (columns < 0) columns = rows;
  if (rows < 0) throw UserError(cat("[eye] ", rows, " rows"));
  const Tensor row = elementwise(Op::add, iota({rows, 1}, 0, DType::Int64, loc), Scalar(k), loc);
  return astype(elementwise(Op::equal, iota({columns}, 0, DType::Int64, loc), row, loc), dtype, loc);
}

Tensor tril(const Tensor& x, std::int64_t k, SourceLocation loc) {
  return triangle("tril", Op::less_equal, x, k, loc);
}
Tensor triu(const Tensor& x, std::int64_t k, SourceLocation loc) {
  return triangle("triu", Op::greater_equal, x, k, loc);
}

Tensor one_hot(const Tensor& indices, std::int64_t classes, DType dtype, SourceLocation loc) {
  const ir::Node* node = api::checked("one_hot", indices);
  if (!is_int(node->dtype)) throw UserError(cat("[one_hot] needs integer indices, got ", api::describe(node)));
  if (classes < 0) throw UserError(cat("[one_hot] ", classes, " classes"));
  const Tensor column = expand_dims(astype(indices, DType::Int64, loc), -1, loc);
  return astype(elementwise(Op::equal, column, iota({classes}, 0, DType::Int64, loc), loc), dtype, loc);
}

}  // namespace kiln
