// Scalar expressions of the loop IR: a hash-consed DAG of typed primitives, and the handle `E` to write them.
//
// Invariant: inside one ExprPool structurally equal expressions have one id, so id equality is value equality
// and common subexpressions are free. An operand's id is always smaller than its user's (ids are a
// topological order). Building folds operations on constants and nothing else: no rewrite here may change a
// float's bits.
#pragma once

#include <kiln/dtype.h>

#include <cstdint>
#include <vector>

namespace kiln::kernel {

enum class Prim : std::uint8_t {
#define KILN_PRIM(Name, Operands) Name,
#include "kernel/prims.def"
#undef KILN_PRIM
};
const char* name(Prim p);
int operand_count(Prim p);

enum class MathFn : std::uint8_t {
#define KILN_MATH_FN(Name, Symbol, Arity) Name,
#include "kernel/math_fns.def"
#undef KILN_MATH_FN
};
const char* symbol(MathFn f);

enum class NativeFn : std::uint8_t {
#define KILN_NATIVE_OP(Name, Symbol, Reference, Cost) Name,
#define KILN_NATIVE_FN(Name, Symbol, Reference) Name,
#include "kernel/native_fns.def"
#undef KILN_NATIVE_OP
#undef KILN_NATIVE_FN
};
const char* symbol(NativeFn f);

using ExprId = std::uint32_t;
inline constexpr ExprId kNoExpr = 0xffffffffu;

struct ExprNode {
  Prim prim;
  DType type;
  ExprId a = kNoExpr, b = kNoExpr, c = kNoExpr;
  std::uint64_t imm = 0;
  friend bool operator==(const ExprNode&, const ExprNode&) = default;
};
/// f(id) for each operand of a node, in order.
template <class F>
void each_operand(const ExprNode& node, F f) {
  for (ExprId o : {node.a, node.b, node.c})
    if (o != kNoExpr) f(o);
}

/// Owns the expressions of one kernel.
class ExprPool {
 public:
  ExprId intern(const ExprNode& node);
  /// By value: a reference would not outlive the next new expression.
  ExprNode operator[](ExprId id) const { return nodes_[id]; }
  ExprId size() const { return static_cast<ExprId>(nodes_.size()); }

  bool exact = false;  // div_bounded divides: no primitive that targets compute each in their way

 private:
  void grow();
  std::vector<ExprNode> nodes_;
  std::vector<ExprId> table_;  // open addressing, power of two, kNoExpr = empty
};

/// Bits of `value` in the storage format of `type` (integers truncate toward zero and wrap).
std::uint64_t const_bits(DType type, double value);
/// Value of one primitive on constant operands (bits in, bits out): the meaning of prims.def, used for
/// folding and by the expression interpreter. `from` is the operands' type (differs from `type` for casts,
/// compares).
std::uint64_t eval_prim(Prim prim, DType type, DType from, std::uint64_t imm, std::uint64_t a,
                        std::uint64_t b, std::uint64_t c);

/// A value handle with operators; all operands of an operation live in one pool and have equal types.
struct E {
  ExprPool* pool = nullptr;
  ExprId id = kNoExpr;

  ExprNode node() const { return (*pool)[id]; }
  DType type() const { return node().type; }
  explicit operator bool() const { return pool != nullptr && id != kNoExpr; }
  /// A constant of this expression's type: x.lit(0.5).
  E lit(double value) const;
  /// A constant of another type in the same pool.
  E lit(DType type, double value) const;
  /// A constant given by its bits: x.bits(DType::Int32, 0x3f800000).
  E bits(DType type, std::uint64_t bits) const;
};

E constant(ExprPool& pool, DType type, double value);
E constant_bits(ExprPool& pool, DType type, std::uint64_t bits);

E operator-(E a);
E operator+(E a, E b);
E operator-(E a, E b);
E operator*(E a, E b);
E operator/(E a, E b);
E operator%(E a, E b);
E operator&(E a, E b);
E operator|(E a, E b);
E operator^(E a, E b);
E operator~(E a);
E operator<<(E a, E b);
E operator>>(E a, E b);
E operator<(E a, E b);
E operator<=(E a, E b);
E operator>(E a, E b);
E operator>=(E a, E b);
E operator==(E a, E b);
E operator!=(E a, E b);
// The same with a literal of the other operand's type.
E operator+(E a, double b);
E operator+(double a, E b);
E operator-(E a, double b);
E operator-(double a, E b);
E operator*(E a, double b);
E operator*(double a, E b);
E operator/(E a, double b);
E operator/(double a, E b);
E operator<(E a, double b);
E operator<=(E a, double b);
E operator>(E a, double b);
E operator>=(E a, double b);
E operator==(E a, double b);
E operator!=(E a, double b);

E fma(E a, E b, E c);
E select(E cond, E a, E b);
E min(E a, E b);
E max(E a, E b);
E abs(E a);
E sqrt(E a);
E floor(E a);
E ceil(E a);
E trunc(E a);
E round_even(E a);
E cast(E a, DType type);
E cast_in_range(E a, DType type);  // float -> int, caller knows that the value fits; or int -> index
E bitcast(E a, DType type);
// Int64 only.
E from_index(E a);
E index_div(E a, E b);  // floor(a/b), 0 <= a < 2^50, 0 < b
/// The same where a parameter holds the low 32 bits of min(floor(2^32 / b), 2^32 - 1), for those who multiply
/// instead.
E index_div(E a, E b, E inverse_param);
// Float32 only; prims.def has their preconditions.
E div_bounded(E a, E b);
E native(NativeFn fn, E a);
E scale(E a, E exponent);
E exponent(E a);
E mantissa(E a);
E philox(E index, E key, DType type);
E call(MathFn fn, E a);
E call(MathFn fn, E a, E b);

}  // namespace kiln::kernel
