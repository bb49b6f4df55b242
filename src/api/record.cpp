#include "api/record.h"

#include "engine/device_memory.h"
#include "engine/evaluate.h"
#include "engine/long_trace.h"
#include "ir/infer.h"
#include "oracle/reference.h"
#include "record/recorded.h"
#include "support/check.h"

#include <kiln/config.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace kiln::api {
namespace {

/// True when the operands' dtype is taken as it is: no cast, no error.
bool direct(const ir::OpInfo& op, DType t) {
  return (op.types & ir::type_class(t)) != 0 && ir::operand_dtype(op.rule, t) == t;
}

bool same_dims(const ir::Node& a, const ir::Node& b) {
  if (a.rank != b.rank) return false;
  const std::int64_t *p = a.dims().data(), *q = b.dims().data();
  for (int i = 0; i < a.rank; ++i)  // a call to memcmp costs more than a few extents
    if (p[i] != q[i]) return false;
  return true;
}

/// True when broadcasting `small` against `big` gives big's shape.
bool fits_inside(const ir::Node& small, const ir::Node& big) {
  return ir::repeats_to(small.dims(), big.dims());
}

/// "float32 (2, 3) and 1", for messages.
std::string describe_all(std::span<const Arg> args) {
  std::string all;
  for (const Arg& a : args)
    all += (all.empty() ? "" : " and ") + (a.node        ? describe(a.node)
                                           : a.is_scalar ? describe(a.scalar)
                                                         : "empty");
  return all;
}

/// Promoted dtype of the operands that take part in it.
DType promoted(std::span<const Arg> args) {
  bool any = false, typed = false;
  DType t = DType::Bool;
  for (const Arg& a : args)
    if (a.node) {
      t = typed ? promote(t, a.node->dtype) : a.node->dtype;
      any = typed = true;
    }
  for (const Arg& a : args)
    if (!a.node) {
      t = any ? weak_promote(t, a.scalar) : default_dtype(a.scalar);
      if (!typed && t == DType::Int64 && a.scalar.kind == Scalar::Kind::UInt) t = DType::UInt64;
      any = true;
    }
  return t;
}

/// The fast path of two tensors: one dtype, and one shape that holds the other. Null: not that case.
ir::Node* record_pair(const ir::OpInfo& row, ir::Op op, ir::Node* x, ir::Node* y, SourceLocation loc) {
  const DType t = x->dtype;
  if (t != y->dtype || !direct(row, t)) return nullptr;
  const ir::Node* shaped = nullptr;
  if (same_dims(*x, *y) || fits_inside(*y, *x))
    shaped = x;
  else if (fits_inside(*x, *y))
    shaped = y;
  else
    return nullptr;
  auto node = ir::NodeRef::adopt(ir::new_node_like(op, ir::result_dtype(row.rule, t), *shaped, loc));
  node->n_in = 2;
  ir::set_input(node.get(), 0, x);
  ir::set_input(node.get(), 1, y);
  return node.take();
}

/// The fast path of a tensor (operand `place` of two) and a number that takes its dtype. Null: not that case.
ir::Node* record_scaled(ir::Op op, ir::Node* tensor, int place, const Scalar& scalar, SourceLocation loc) {
  const ir::OpInfo& row = ir::info(op);
  const DType t = tensor->dtype;
  if (weak_promote(t, scalar) != t || !direct(row, t)) return nullptr;
  ir::Node* node = ir::new_node_like(op, ir::result_dtype(row.rule, t), *tensor, loc);
  node->n_in = 2;
  ir::set_input(node, place, tensor);
  node->imm = scalar_bits(scalar, t);
  return node;
}

/// Every case: promotion with casts, broadcasting, scalars in any place.
Tensor elementwise_general(ir::Op op, std::span<const Arg> args, SourceLocation loc) {
  const CallScope scope(ir::info(op).name, loc);
  const ir::OpInfo& row = ir::info(op);
  for (const Arg& a : args)
    if (!a.node && !a.is_scalar)
      throw UserError(cat("[", row.name, "] an operand is an empty Tensor",
                          args.size() > 1 ? ": " + describe_all(args) : ""));
  const bool select = row.rule == ir::TypeRule::Select;
  const DType t = promoted(select ? args.subspan(1) : args);
  const DType operand = ir::operand_dtype(row.rule, t);
  if ((row.types & ir::type_class(operand)) == 0)
    throw UserError(cat("[", row.name, "] does not take ", name(operand), " operands: ", describe_all(args)));
  const ir::Node* shaped = nullptr;  // the operand whose shape is the result's so far, if one has it
  Shape dims;
  bool first = true;
  for (const Arg& a : args) {
    if (!a.node) continue;
    if (first || (shaped && fits_inside(*shaped, *a.node))) {
      shaped = a.node;
      dims = a.node->shape();
    } else if (!(shaped && fits_inside(*a.node, *shaped))) {
      const std::optional<Shape> both = ir::broadcast_dims(dims, a.node->dims());
      if (!both) throw UserError(cat("[", row.name, "] ", describe_all(args), " do not broadcast"));
      dims = *both;
      shaped = nullptr;
    }
    first = false;
  }
  const DType result = ir::result_dtype(row.rule, operand);
  auto node =
      ir::NodeRef::adopt(shaped ? ir::new_node_like(op, result, *shaped) : ir::new_node(op, result, dims));
  node->n_in = static_cast<std::uint8_t>(args.size());
  bool immediate = false;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const DType want = select && i == 0 ? DType::Bool : operand;
    if (args[i].node) {
      ir::set_input(node.get(), static_cast<int>(i), cast_node(args[i].node, want).get());
    } else if (!immediate && !(select && i == 0)) {
      node->imm = scalar_bits(args[i].scalar, want);
      immediate = true;
    } else {
      ir::set_input(node.get(), static_cast<int>(i), scalar_node(args[i].scalar, want).get());
    }
  }
  return finish(std::move(node));
}

}  // namespace

std::uint64_t scalar_bits(Scalar s, DType dtype) {
  const bool is_float_scalar = s.kind == Scalar::Kind::Float, is_large = s.kind == Scalar::Kind::UInt;
  if (dtype == DType::Float32 && !is_large)
    return std::bit_cast<std::uint32_t>(is_float_scalar ? static_cast<float>(s.f) : static_cast<float>(s.i));
  return dispatch_stored(dtype, [&]<class T>() -> std::uint64_t {
    const T value = is_float_scalar ? ir::ref::cast<T>(s.f)
                    : is_large      ? ir::ref::cast<T>(static_cast<std::uint64_t>(s.i))
                                    : ir::ref::cast<T>(s.i);
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    return bits;
  });
}

DType weak_promote(DType t, Scalar s) {
  switch (s.kind) {
    case Scalar::Kind::Bool: return t;
    case Scalar::Kind::Int: return is_bool(t) ? DType::Int64 : t;
    case Scalar::Kind::UInt: return is_bool(t) ? DType::UInt64 : t;
    case Scalar::Kind::Float: return is_float(t) ? t : DType::Float32;
  }
  return t;
}

DType default_dtype(Scalar s) {
  switch (s.kind) {
    case Scalar::Kind::Bool: return DType::Bool;
    case Scalar::Kind::Int: return DType::Int64;
    case Scalar::Kind::UInt: return DType::UInt64;
    case Scalar::Kind::Float: return DType::Float32;
  }
  return DType::Float32;
}

ir::Node* checked(std::string_view op, const Tensor& t) {
  if (!t.valid()) throw UserError(cat("[", op, "] an operand is an empty Tensor"));
  return t.node();
}

void check_both(std::string_view op, const Tensor& x, const Tensor& y) {
  if (!x.valid() || !y.valid())
    throw UserError(cat("[", op, "] an operand is an empty Tensor: ", describe(x), " and ", describe(y)));
}

std::string describe(Scalar s) {
  switch (s.kind) {
    case Scalar::Kind::Bool: return s.i ? "true" : "false";
    case Scalar::Kind::Int: return std::to_string(s.i);
    case Scalar::Kind::UInt: return std::to_string(static_cast<std::uint64_t>(s.i));
    case Scalar::Kind::Float: return s.f != s.f ? "nan" : cat(s.f);  // a NaN may have a sign
  }
  return {};
}

std::string describe(const Tensor& t) { return t.valid() ? describe(t.node()) : "empty"; }

namespace {

/// describe() is called for messages only: of what the axis should be one.
template <class Describe>
int resolved_axis(std::string_view op, Axis axis, int rank, Describe describe) {
  const std::int64_t a = axis.value();
  if (a < -rank || a >= rank) [[unlikely]]
    throw UserError(cat("[", op, "] axis ", a, " is out of range for ", describe()));
  return static_cast<int>(a < 0 ? a + rank : a);
}

}  // namespace

int checked_axis(std::string_view op, Axis axis, const ir::Node* x) {
  return resolved_axis(op, axis, x->rank, [&] { return describe(x); });
}

int checked_axis(std::string_view op, Axis axis, std::span<const std::int64_t> dims) {
  return resolved_axis(op, axis, static_cast<int>(dims.size()), [&] { return "shape " + to_string(dims); });
}

std::uint64_t checked_axes(std::string_view op, const Axes& axes, const ir::Node* x, int added) {
  const int rank = x->rank + added;
  if (axes.all()) return (std::uint64_t{1} << rank) - 1;
  const auto whole = [&] {
    return added == 0 ? describe(x)
                      : cat(describe(x), " with ", added, added == 1 ? " new axis" : " new axes");
  };
  std::uint64_t mask = 0;
  for (std::int64_t axis : axes.list()) {
    const std::uint64_t bit = std::uint64_t{1} << resolved_axis(op, axis, rank, whole);
    if (mask & bit) throw UserError(cat("[", op, "] axis ", axis, " is given twice for ", whole()));
    mask |= bit;
  }
  return mask;
}

Tensor elementwise(ir::Op op, const Arg& x, SourceLocation loc) {
  const ir::OpInfo& row = ir::info(op);
  if (x.node && direct(row, x.node->dtype)) [[likely]] {
    auto node =
        ir::NodeRef::adopt(ir::new_node_like(op, ir::result_dtype(row.rule, x.node->dtype), *x.node, loc));
    node->n_in = 1;
    ir::set_input(node.get(), 0, x.node);
    return finish(std::move(node));
  }
  return elementwise_general(op, {&x, 1}, loc);
}

Tensor elementwise(ir::Op op, const Arg& x, const Arg& y, SourceLocation loc) {
  if (x.node && y.node) {
    if (ir::Node* node = record_pair(ir::info(op), op, x.node, y.node, loc)) [[likely]]
      return finish(ir::NodeRef::adopt(node));
  } else if ((x.node && y.is_scalar) || (y.node && x.is_scalar)) {
    const int place = x.node ? 0 : 1;
    if (ir::Node* node =
            record_scaled(op, x.node ? x.node : y.node, place, x.node ? y.scalar : x.scalar, loc)) [[likely]]
      return finish(ir::NodeRef::adopt(node));
  }
  const Arg args[] = {x, y};
  return elementwise_general(op, args, loc);
}

Tensor elementwise_binary(ir::Op op, const Tensor& x, const Operand& y) {
  if (ir::Node* const lhs = x.node()) [[likely]] {
    ir::Node* node = nullptr;
    if (y.tensor == nullptr)
      node = record_scaled(op, lhs, 0, y.scalar, y.loc);
    else if (ir::Node* const rhs = y.tensor->node())
      node = record_pair(ir::info(op), op, lhs, rhs, y.loc);
    if (node) [[likely]]
      return finish(ir::NodeRef::adopt(node));
  }
  const Arg args[] = {x, y};
  return elementwise_general(op, args, y.loc);
}

Tensor elementwise(ir::Op op, const Arg& x, const Arg& y, const Arg& z, SourceLocation loc) {
  const Arg args[] = {x, y, z};
  return elementwise_general(op, args, loc);
}

ir::NodeRef cast_node(ir::Node* x, DType dtype) {
  if (x->dtype == dtype) return ir::NodeRef::share(x);
  if (size_of(dtype) > size_of(x->dtype) && x->numel > INT64_MAX / size_of(dtype))
    throw UserError(cat("[astype] ", describe(x), " as ", name(dtype), " has more than 2^63 bytes"));
  auto node = ir::NodeRef::adopt(ir::new_node_like(ir::Op::cast, dtype, *x));
  node->n_in = 1;
  ir::set_input(node.get(), 0, x);
  return node;
}

ir::NodeRef bitcast_node(ir::Node* x, DType dtype) {
  if (x->dtype == dtype) return ir::NodeRef::share(x);
  auto node = ir::NodeRef::adopt(ir::new_node_like(ir::Op::bitcast, dtype, *x));
  node->n_in = 1;
  ir::set_input(node.get(), 0, x);
  return node;
}

ir::NodeRef scalar_node(Scalar value, DType dtype, std::optional<Device> device) {
  auto node = ir::NodeRef::adopt(ir::new_node(ir::Op::scalar, dtype, {}));
  node->imm = scalar_bits(value, dtype);
  if (device) node->device = ir::device_code(*device) & 15;
  return node;
}

Tensor leaf(ir::Buffer* buffer, const Shape& shape, DType dtype, std::int64_t offset,
            const std::int64_t* strides, std::optional<Device> device) {
  try {
    const Device there = device ? *device : engine::default_device();
    if (buffer->device != there) {
      ir::Buffer* moved = engine::copied_to(*buffer, there);
      ir::release(std::exchange(buffer, moved));
    }
    return Tensor::adopt(ir::new_leaf(buffer, dtype, shape, offset, strides));
  } catch (...) {
    ir::release(buffer);
    throw;
  }
}

namespace {
constinit thread_local int recordings = 0;
}
Recording::Recording() { ++recordings; }
Recording::~Recording() { --recordings; }
int Recording::depth() { return recordings; }

Tensor finish(ir::NodeRef node) {
  if (config().mode != Mode::Lazy && recordings == 0) [[unlikely]] {
    ir::Node* const root = node.get();
    engine::evaluate({&root, 1});
  }
  if (ir::recorded.full()) [[unlikely]]
    engine::bound_recording(*node);
  return Tensor::adopt(node.take());
}

}  // namespace kiln::api

void kiln::Axes::append(Axis axis, const SourceLocation& loc) {
  if (count_ == kMaxRank) throw UserError(cat("[axes] more than ", kMaxRank, " axes"), loc);
  axes_[count_++] = axis.value();
}
