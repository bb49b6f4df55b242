// Recording: turns API calls into nodes. Checks operands (the only place user errors about shapes and dtypes are
// raised), promotes dtypes, resolves weak scalars, broadcasts. Takes no lock and never merges nodes.
#pragma once

#include "ir/node.h"

#include <kiln/tensor.h>

#include <span>

namespace kiln::api {

/// An operand of an op: a node, or (node null) a weak scalar.
struct Arg {
  ir::Node* node = nullptr;
  Scalar scalar;
  Arg(const Tensor& t) : node(t.node()) {}
  Arg(Scalar s) : scalar(s) {}
  Arg(const Operand& o) : node(o.tensor ? o.tensor->node() : nullptr), scalar(o.scalar) {}
};

/// Records an elementwise op of ops.def: promotes, casts operands where needed, broadcasts.
Tensor elementwise(ir::Op op, Arg x, SourceLocation loc);
Tensor elementwise(ir::Op op, Arg x, Arg y, SourceLocation loc);
Tensor elementwise(ir::Op op, Arg x, Arg y, Arg z, SourceLocation loc);

/// Bits of a weak scalar as `dtype` (storage format, zero-extended): integers wrap, floats round.
std::uint64_t scalar_bits(Scalar s, DType dtype);
/// The dtype a weak scalar gives when combined with a tensor of dtype t (float with int: float32; int with bool:
/// int64; otherwise t).
DType weak_promote(DType t, Scalar s);
/// Shape of broadcasting a and b; UserError "[op] shapes (2, 3) and (4,) do not broadcast" otherwise.
Shape broadcast_shapes(std::string_view op, std::span<const std::int64_t> a, std::span<const std::int64_t> b);
/// Checks a handle and returns its node: "[op] an operand is an empty Tensor".
ir::Node* checked(std::string_view op, const Tensor& t);
/// Hands a new node to the caller; in eager and interpret modes evaluates it first.
Tensor finish(ir::Node* node);

}  // namespace kiln::api
