// infer: the dtype and extents of an op's result, from its operands' and its attributes. Nobody else works
// them out: ir::verify compares every node with them, builders take them, and recording uses the parts below,
// which cost nothing.
#pragma once

#include "ir/attributes.h"

#include <kiln/dtype.h>
#include <kiln/shape.h>

#include <algorithm>
#include <optional>

namespace kiln::ir {

// ---- dtypes ----

/// The operand class of a dtype: a TypeSet of one bit.
constexpr std::uint8_t type_class(DType t) {
  switch (info(t).cls) {
    case DTypeClass::Bool: return BOOL;
    case DTypeClass::Int:
    case DTypeClass::UInt: return INTEGER;
    case DTypeClass::Float: return FLOAT;
  }
  return 0;
}

/// The dtype that operands are converted to, from their promoted dtype.
constexpr DType operand_dtype(TypeRule rule, DType t) {
  if (rule == TypeRule::Select || rule == TypeRule::Structural) return t;
  t = computed_as(t);
  switch (rule) {
    case TypeRule::Float: return is_float(t) ? t : DType::Float32;
    case TypeRule::FromBits: return is_int(t) ? DType::UInt8 : t;
    case TypeRule::ToBits: return is_half(t) ? DType::Float32 : t;
    case TypeRule::Logical: return DType::Bool;
    case TypeRule::Word32:
    case TypeRule::Word64: return is_int(t) ? DType::UInt64 : t;
    case TypeRule::Same:
    case TypeRule::Compare:
    case TypeRule::Select:
    case TypeRule::Structural: return t;
  }
  return t;
}

/// The dtype of an elementwise result, from its operands' (a choice's: of what it chooses from).
constexpr DType result_dtype(TypeRule rule, DType operand) {
  if (rule == TypeRule::Word32) return DType::UInt32;
  if (rule == TypeRule::FromBits) return DType::Float32;
  if (rule == TypeRule::ToBits) return DType::UInt8;
  return rule == TypeRule::Compare || rule == TypeRule::Logical ? DType::Bool : operand;
}

/// The dtype of a reduction, sort or search.
inline DType structural_dtype(Op op, DType operand) { return has(op, POSITION) ? DType::Int64 : operand; }

// ---- extents ----

/// Whether `from` shows as `to` by right-aligned repetition of extents of 1.
inline bool repeats_to(Dims from, Dims to) {
  if (from.size() > to.size()) return false;
  const std::size_t lead = to.size() - from.size();
  for (std::size_t a = 0; a < from.size(); ++a)
    if (from[a] != to[lead + a] && from[a] != 1) return false;
  return true;
}

/// The extents that both repeat to, if there are any.
std::optional<Shape> broadcast_dims(Dims a, Dims b);

/// A reduction keeps its axes as extents of 1.
inline Shape reduced_dims(Dims dims, const Reduce& axes) {
  Shape out(dims);
  for (std::size_t a = 0; a < dims.size(); ++a)
    if (axes.over(a)) out[static_cast<int>(a)] = 1;
  return out;
}

inline Shape permuted_dims(Dims dims, const Permute& axes) {
  Shape out;
  for (std::size_t a = 0; a < dims.size(); ++a) out.push_back(dims[axes[a]]);
  return out;
}

/// A sort or a slice at a position shows fewer elements of one axis.
inline Shape dims_with(Dims dims, std::size_t axis, std::int64_t extent) {
  Shape out(dims);
  out[static_cast<int>(axis)] = extent;
  return out;
}

/// One value of each iteration, along a first axis.
inline Shape stacked_dims(std::int64_t count, Dims dims) {
  Shape out{count};
  for (std::int64_t d : dims) out.push_back(d);
  return out;
}

// ---- all ops ----

struct Type {
  DType dtype = DType::Float32;
  Dims dims;
};

/// What a node says of its own result, where operands and attributes leave it open: the dtype of a cast, the
/// extents of a reshape. An elementwise op repeats its operands to the extents that it states, and needs to
/// state none.
struct Stated {
  std::optional<DType> dtype;
  std::optional<Dims> dims;
};

struct Inferred {
  DType dtype = DType::Float32;
  Shape dims;
  const char* fault =
      nullptr;  // what is wrong with operands, attributes or stated extents; then nothing else holds
};

/// Pre: `attributes` are well stored and fit the op. Where operands and attributes say all, `stated` is not
/// looked at.
Inferred infer(Op op, std::span<const Type> in, const Stored& attributes, const Stated& stated = {});

/// The dtype and extents of result `index` of an op of several results (BUNDLE), from those of its first and
/// its attributes.
Inferred infer_part(Op op, const Type& first, std::size_t index, const Stored& attributes = {});

}  // namespace kiln::ir
