// Building scalar expressions: the hash-consing pool, and operators that fold constants through eval_prim.
//
// Invariant: a node enters the table once and never moves; `make` is the only place that folds.
// DivBounded is never folded, because its last bit belongs to the machine that runs the kernel.
#include "kernel/expr.h"

#include "support/check.h"

#include <bit>

namespace kiln::kernel {
namespace {

constexpr const char* kPrimNames[] = {
#define KILN_PRIM(Name, Operands) #Name,
#include "kernel/prims.def"
#undef KILN_PRIM
};
constexpr int kPrimOperands[] = {
#define KILN_PRIM(Name, Operands) Operands,
#include "kernel/prims.def"
#undef KILN_PRIM
};
constexpr const char* kMathSymbols[] = {
#define KILN_MATH_FN(Name, Symbol, Arity) #Symbol,
#include "kernel/math_fns.def"
#undef KILN_MATH_FN
};

constexpr const char* kNativeSymbols[] = {
#define KILN_NATIVE_OP(Name, Symbol, Reference, Cost) #Symbol,
#define KILN_NATIVE_FN(Name, Symbol, Reference) #Symbol,
#include "kernel/native_fns.def"
#undef KILN_NATIVE_OP
#undef KILN_NATIVE_FN
};

constexpr std::size_t kFirstTableSize = 256;

std::size_t hash_of(const ExprNode& n) {
  constexpr std::uint64_t k1 = 0x9e3779b97f4a7c15u, k2 = 0xc2b2ae3d27d4eb4fu, k3 = 0x165667b19e3779f9u;
  const std::uint64_t head = static_cast<std::uint64_t>(n.prim) | static_cast<std::uint64_t>(n.type) << 8 |
                             static_cast<std::uint64_t>(n.a) << 16;
  const std::uint64_t tail = static_cast<std::uint64_t>(n.b) << 32 | n.c;
  std::uint64_t h = head * k1 ^ std::rotl(tail * k2, 31) ^ std::rotl(n.imm * k3, 17);
  h = (h ^ (h >> 29)) * k2;
  return static_cast<std::size_t>(h ^ (h >> 32));
}

/// Folds `node` where its operands are constants, else interns it.
E make(ExprPool& pool, const ExprNode& node) {
  const int operands = operand_count(node.prim);
  bool fold = operands > 0 && node.prim != Prim::DivBounded && node.prim != Prim::Load;
  const ExprId ids[] = {node.a, node.b, node.c};
  std::uint64_t values[3] = {};
  for (int i = 0; fold && i < operands; ++i) {
    const ExprNode& operand = pool[ids[i]];
    fold = operand.prim == Prim::Const;
    values[i] = operand.imm;
  }
  if (!fold) return {&pool, pool.intern(node)};
  const DType from = pool[node.a].type;
  return constant_bits(pool, node.type,
                       eval_prim(node.prim, node.type, from, node.imm, values[0], values[1], values[2]));
}

E unary(Prim p, E a) { return make(*a.pool, {p, a.type(), a.id}); }
E unary(Prim p, E a, DType type) { return make(*a.pool, {p, type, a.id}); }

void check_pair(Prim p, E a, E b) {
  KILN_CHECK_THAT(a.pool == b.pool && a.type() == b.type(), name(p), " of ", name(a.type()), " and ",
                  name(b.type()));
}

E binary(Prim p, E a, E b) {
  check_pair(p, a, b);
  return make(*a.pool, {p, a.type(), a.id, b.id});
}

E compare(Prim p, E a, E b) {
  check_pair(p, a, b);
  return make(*a.pool, {p, DType::Bool, a.id, b.id});
}

}  // namespace

const char* name(Prim p) { return kPrimNames[static_cast<int>(p)]; }
int operand_count(Prim p) { return kPrimOperands[static_cast<int>(p)]; }
const char* symbol(MathFn f) { return kMathSymbols[static_cast<int>(f)]; }
const char* symbol(NativeFn f) { return kNativeSymbols[static_cast<int>(f)]; }

ExprId ExprPool::intern(const ExprNode& node) {
  // Linear probing at a load of at most one half: an expected 1.5 probes, nearly always within one cache
  // line.
  if (nodes_.size() * 2 >= table_.size()) grow();
  const std::size_t mask = table_.size() - 1;
  std::size_t slot = hash_of(node) & mask;
  while (table_[slot] != kNoExpr) {
    if (nodes_[table_[slot]] == node) return table_[slot];
    slot = (slot + 1) & mask;
  }
  const ExprId id = size();
  nodes_.push_back(node);
  table_[slot] = id;
  return id;
}

void ExprPool::grow() {
  const std::size_t capacity = table_.empty() ? kFirstTableSize : table_.size() * 2;
  table_.assign(capacity, kNoExpr);
  nodes_.reserve(capacity / 2);
  for (ExprId id = 0; id < size(); ++id) {
    std::size_t slot = hash_of(nodes_[id]) & (capacity - 1);
    while (table_[slot] != kNoExpr) slot = (slot + 1) & (capacity - 1);
    table_[slot] = id;
  }
}

E constant_bits(ExprPool& pool, DType type, std::uint64_t bits) {
  ExprNode node{Prim::Const, type};
  node.imm = bits;
  return {&pool, pool.intern(node)};
}
E constant(ExprPool& pool, DType type, double value) {
  return constant_bits(pool, type, const_bits(type, value));
}

E E::lit(double value) const { return constant(*pool, type(), value); }
E E::lit(DType type, double value) const { return constant(*pool, type, value); }
E E::bits(DType type, std::uint64_t bits) const { return constant_bits(*pool, type, bits); }

E operator-(E a) { return unary(Prim::Neg, a); }
E operator~(E a) { return unary(Prim::Not, a); }
E abs(E a) { return unary(Prim::Abs, a); }
E sqrt(E a) { return unary(Prim::Sqrt, a); }
E floor(E a) { return unary(Prim::Floor, a); }
E ceil(E a) { return unary(Prim::Ceil, a); }
E trunc(E a) { return unary(Prim::Trunc, a); }
E round_even(E a) { return unary(Prim::RoundEven, a); }
E exponent(E a) { return unary(Prim::Exponent, a); }
E mantissa(E a) { return unary(Prim::Mantissa, a); }

E cast(E a, DType type) { return a.type() == type ? a : unary(Prim::Cast, a, type); }
E cast_in_range(E a, DType type) { return unary(Prim::CastInRange, a, type); }
E bitcast(E a, DType type) {
  KILN_CHECK_THAT(size_of(a.type()) == size_of(type), name(a.type()), " to ", name(type));
  return a.type() == type ? a : unary(Prim::Bitcast, a, type);
}

E operator+(E a, E b) { return binary(Prim::Add, a, b); }
E operator-(E a, E b) { return binary(Prim::Sub, a, b); }
E operator*(E a, E b) { return binary(Prim::Mul, a, b); }
E operator/(E a, E b) { return binary(Prim::Div, a, b); }
E operator%(E a, E b) { return binary(Prim::Rem, a, b); }
E operator&(E a, E b) { return binary(Prim::And, a, b); }
E operator|(E a, E b) { return binary(Prim::Or, a, b); }
E operator^(E a, E b) { return binary(Prim::Xor, a, b); }
E operator<<(E a, E b) { return binary(Prim::Shl, a, b); }
E operator>>(E a, E b) { return binary(Prim::Shr, a, b); }
E min(E a, E b) { return binary(Prim::Min, a, b); }
E max(E a, E b) { return binary(Prim::Max, a, b); }
E div_bounded(E a, E b) { return binary(a.pool->exact ? Prim::Div : Prim::DivBounded, a, b); }
E index_div(E a, E b) { return binary(Prim::IndexDiv, a, b); }
E index_div(E a, E b, E inverse_param) {
  check_pair(Prim::IndexDiv, a, b);
  return make(*a.pool, {Prim::IndexDiv, DType::Int64, a.id, b.id, kNoExpr, inverse_param.node().imm + 1});
}
E from_index(E a) { return unary(Prim::FromIndex, a); }
E scale(E a, E exponent) { return binary(Prim::Scale, a, exponent); }

E philox(E index, E key, DType type) {
  check_pair(Prim::Philox, index, key);
  return make(*index.pool, {Prim::Philox, type, index.id, key.id});
}

E operator<(E a, E b) { return compare(Prim::Lt, a, b); }
E operator<=(E a, E b) { return compare(Prim::Le, a, b); }
E operator>(E a, E b) { return compare(Prim::Lt, b, a); }
E operator>=(E a, E b) { return compare(Prim::Le, b, a); }
E operator==(E a, E b) { return compare(Prim::Eq, a, b); }
E operator!=(E a, E b) { return compare(Prim::Ne, a, b); }

E operator+(E a, double b) { return a + a.lit(b); }
E operator+(double a, E b) { return b.lit(a) + b; }
E operator-(E a, double b) { return a - a.lit(b); }
E operator-(double a, E b) { return b.lit(a) - b; }
E operator*(E a, double b) { return a * a.lit(b); }
E operator*(double a, E b) { return b.lit(a) * b; }
E operator/(E a, double b) { return a / a.lit(b); }
E operator/(double a, E b) { return b.lit(a) / b; }
E operator<(E a, double b) { return a < a.lit(b); }
E operator<=(E a, double b) { return a <= a.lit(b); }
E operator>(E a, double b) { return a > a.lit(b); }
E operator>=(E a, double b) { return a >= a.lit(b); }
E operator==(E a, double b) { return a == a.lit(b); }
E operator!=(E a, double b) { return a != a.lit(b); }

E fma(E a, E b, E c) {
  check_pair(Prim::Fma, a, b);
  check_pair(Prim::Fma, a, c);
  return make(*a.pool, {Prim::Fma, a.type(), a.id, b.id, c.id});
}

E select(E cond, E a, E b) {
  check_pair(Prim::Select, a, b);
  KILN_CHECK_THAT(cond.pool == a.pool && cond.type() == DType::Bool, name(cond.type()));
  // A constant condition picks its side even where the sides are not constants.
  if (cond.node().prim == Prim::Const) return cond.node().imm ? a : b;
  return {a.pool, a.pool->intern({Prim::Select, a.type(), cond.id, a.id, b.id})};
}

E native(NativeFn fn, E a) {
  KILN_CHECK_THAT(a.type() == DType::Float32, symbol(fn), " of ", name(a.type()));
  ExprNode node{Prim::Native, a.type(), a.id};
  node.imm = static_cast<std::uint64_t>(fn);
  return make(*a.pool, node);
}

E call(MathFn fn, E a) {
  KILN_CHECK_THAT(a.type() == DType::Float64, symbol(fn), " of ", name(a.type()));
  ExprNode node{Prim::Call1, a.type(), a.id};
  node.imm = static_cast<std::uint64_t>(fn);
  return make(*a.pool, node);
}

E call(MathFn fn, E a, E b) {
  check_pair(Prim::Call2, a, b);
  KILN_CHECK_THAT(a.type() == DType::Float64, symbol(fn), " of ", name(a.type()));
  ExprNode node{Prim::Call2, a.type(), a.id, b.id};
  node.imm = static_cast<std::uint64_t>(fn);
  return make(*a.pool, node);
}

}  // namespace kiln::kernel
