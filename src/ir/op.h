// Operations and what is known about each one: its kind, and for elementwise ones their row of ops.def.
#pragma once

#include <kiln/dtype.h>

#include <cstdint>
#include <string_view>

namespace kiln::ir {

enum class Op : std::uint16_t {
#define KILN_STRUCTURAL(Name, ...) Name,
#include "ir/structural.def"
#undef KILN_STRUCTURAL
#define KILN_OP(Name, ...) Name,
#include <kiln/ops.def>
#undef KILN_OP
};

enum class OpKind : std::uint8_t {
  Leaf,
  Scalar,
  Iota,
  Cast,
  View,
  Reduce,
  Scan,
  LoopState,
  LoopNext,
  Loop,
  LoopResult,
  LoopStack,
  Gather,
  Contraction,
  Library,
  Part,
  Elementwise
};
enum class TypeRule : std::uint8_t {
  Structural,
  Same,
  Float,
  Compare,
  Logical,
  Select,
  Word32,
  Word64,
  FromBits,
  ToBits
};

/// How a reduction or a scan makes one value of two. None: it is neither.
enum class Fold : std::uint8_t { None, Sum, Prod, Max, Min, ArgMax, ArgMin, LogAddExp };
/// Whether the result is one of the elements, or its position.
constexpr bool chooses(Fold f) {
  return f == Fold::Max || f == Fold::Min || f == Fold::ArgMax || f == Fold::ArgMin;
}

/// Classes of operand types an op accepts (bit set).
enum TypeSet : std::uint8_t { BOOL = 1, INTEGER = 2, FLOAT = 4, NUMERIC = 6, BITS = 3, ANY = 7 };

/// What may be relied on of an op, beyond its types (bit set). Of an op without a bit nothing is known.
enum Trait : std::uint16_t {
  // y op x has the bits of x op y: always, or of integers and bool alone
  COMMUTES = 1,
  COMMUTES_INT = 2,
  // of floats, to the bit: -x gives minus the result, or the same one. ODD of two operands: -x alone, -y
  // alone
  ODD = 4,
  EVEN = 8,
  // kernels have the bits of the reference: IEEE arithmetic and choices, no approximation
  EXACT = 16,
  // an operand with a small error costs the result no more than its own error
  SMOOTH = 32,
  // tells apart neighbouring values: it takes a half as stored, without the bits that Float32 has more
  JUMPS = 64,
  // of floats: the result is an integer or not finite; such an operand is the result
  WHOLE = 128,
  ROUNDS = 256,
  // op(op(x)) is x; op(op(x)) is op(x), with two operands x op x is x
  INVOLUTION = 512,
  IDEMPOTENT = 1024,
  // the result is an int64 position, whatever the operands' dtype
  POSITION = 2048,
  // of a view: each coordinate of the operand is a number plus multiples of the result's (view_map.h)
  AFFINE = 4096,
  // it has several results, each of which a node `part` shows, and no value of its own; its dtype and extents
  // are those of its first result
  BUNDLE = 8192
};

struct OpInfo {
  std::string_view name;
  OpKind kind;
  std::uint8_t arity;
  TypeRule rule;
  std::uint8_t types;
  std::uint16_t traits;
  std::string_view doc;
  double lo, hi;
  Fold fold = Fold::None;
  double of_none = 0;  // what a reduction of no elements gives
};

extern const OpInfo kOpInfo[];
extern const int kOpCount;
inline const OpInfo& info(Op op) { return kOpInfo[static_cast<int>(op)]; }
inline bool has(Op op, Trait trait) { return (info(op).traits & trait) != 0; }
inline bool is_elementwise(Op op) {
  return info(op).kind == OpKind::Elementwise || info(op).kind == OpKind::Cast;
}
/// Words of a random stream: of many instructions each.
inline bool is_random(Op op) {
  return info(op).rule == TypeRule::Word32 || info(op).rule == TypeRule::Word64;
}
inline bool is_view(Op op) { return info(op).kind == OpKind::View; }
/// Runs as a step of its own on whole arrays in memory: neither generated nor fused.
inline bool is_library(Op op) {
  return info(op).kind == OpKind::Library || info(op).kind == OpKind::Contraction;
}
/// A node without: it stands for what other nodes show, a loop or an op of several results.
inline bool has_value(Op op) {
  return info(op).kind != OpKind::Loop && info(op).kind != OpKind::LoopNext && !has(op, BUNDLE);
}
inline bool is_reduce(Op op) { return info(op).kind == OpKind::Reduce; }
inline bool is_scan(Op op) { return info(op).kind == OpKind::Scan; }
}  // namespace kiln::ir
