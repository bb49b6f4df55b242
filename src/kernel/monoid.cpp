#include "kernel/monoid.h"

#include "support/check.h"

#include <limits>
#include <span>
#include <unordered_map>
#include <vector>

namespace kiln::kernel {
namespace {

/// Expressions of a custom monoid, with what stands for its parts.
std::vector<ExprId> with_parts(ExprPool& pool, std::span<const ExprId> roots, std::span<const ExprId> later,
                               std::span<const ExprId> earlier) {
  std::unordered_map<ExprId, ExprId> made;
  const auto copy = [&](auto& self, ExprId id) -> ExprId {
    if (id == kNoExpr) return id;
    ExprNode n = pool[id];
    if (n.prim == Prim::Earlier) return earlier[n.imm];
    if (n.prim == Prim::Later) return later[n.imm];
    if (const auto it = made.find(id); it != made.end()) return it->second;
    n.a = self(self, n.a);
    n.b = self(self, n.b);
    n.c = self(self, n.c);
    return made[id] = pool.intern(n);
  };
  std::vector<ExprId> out;
  for (ExprId root : roots) out.push_back(copy(copy, root));
  return out;
}

std::vector<ExprId> ids_of(std::span<const E> values) {
  std::vector<ExprId> ids;
  for (const E& value : values) ids.push_back(value.id);
  return ids;
}

}  // namespace

std::uint64_t identity(const AccDecl& acc) {
  const DType t = acc.type;
  switch (acc.monoid) {
    case Monoid::Sum:
    case Monoid::State: return 0;
    case Monoid::Custom: break;
    case Monoid::Prod: return const_bits(t, 1);
    case Monoid::Max:
    case Monoid::Min:
    case Monoid::ArgMax:
    case Monoid::ArgMin: break;
  }
  KILN_CHECK_THAT(acc.monoid != Monoid::Custom, "an identity in parts");
  const bool low = greatest(acc.monoid);
  const double inf = std::numeric_limits<double>::infinity();
  if (is_float(t)) return const_bits(t, low ? -inf : inf);
  const int bits = is_bool(t) ? 1 : static_cast<int>(8 * size_of(t));
  const std::uint64_t all = ~std::uint64_t{0} >> (64 - bits), top = std::uint64_t{1} << (bits - 1);
  if (is_signed_int(t)) return low ? top : all >> 1;
  return low ? 0 : all;
}

E identity(Kernel& k, const AccDecl& acc) {
  if (acc.monoid != Monoid::Custom) return constant_bits(k.pool, acc.type, identity(acc));
  return show_parts(k, acc, identity_parts(k, acc));
}

std::vector<E> identity_parts(Kernel& k, const AccDecl& acc) {
  const CustomMonoid& c = k.customs[acc.custom];
  std::vector<E> parts;
  for (std::size_t p = 0; p < c.types.size(); ++p)
    parts.push_back(constant_bits(k.pool, c.types[p], c.identity[p]));
  return parts;
}

std::vector<E> merge_parts(Kernel& k, const AccDecl& acc, E later, std::span<const E> earlier) {
  const CustomMonoid& c = k.customs[acc.custom];
  const auto lifted = with_parts(k.pool, c.lift, {&later.id, 1}, {});
  std::vector<E> out;
  for (const ExprId part : with_parts(k.pool, c.merge, lifted, ids_of(earlier)))
    out.push_back({&k.pool, part});
  return out;
}

E show_parts(Kernel& k, const AccDecl& acc, std::span<const E> parts) {
  const CustomMonoid& c = k.customs[acc.custom];
  return {&k.pool, with_parts(k.pool, {&c.show, 1}, {}, ids_of(parts)).front()};
}

E merge(Kernel& k, const AccDecl& acc, E later, E earlier) {
  switch (acc.monoid) {
    case Monoid::Sum: return earlier + later;
    case Monoid::Prod: return earlier * later;
    case Monoid::Max: return max(later, earlier);
    case Monoid::Min: return min(later, earlier);
    case Monoid::Custom: break;
    case Monoid::ArgMax:
    case Monoid::ArgMin:
    case Monoid::State: KILN_CHECK_THAT(false, "no monoid of plain values");
  }
  const CustomMonoid& c = k.customs[acc.custom];
  const auto first = with_parts(k.pool, c.lift, {&earlier.id, 1}, {}),
             second = with_parts(k.pool, c.lift, {&later.id, 1}, {});
  const auto both = with_parts(k.pool, c.merge, second, first);
  return {&k.pool, with_parts(k.pool, {&c.show, 1}, {}, both).front()};
}

bool sums_relative(const ExprPool& pool, const CustomMonoid& m) {
  if (m.types.size() != 2 || m.types[0] != m.types[1] || !is_float(m.types[0]) || m.identity[1] != 0)
    return false;
  const auto is_part = [&](ExprId e, Prim prim, std::uint64_t part) {
    return pool[e].prim == prim && pool[e].imm == part;
  };
  const ExprNode greatest = pool[m.merge[0]], sum = pool[m.merge[1]];
  const bool is_max = greatest.prim == Prim::Max &&
                      ((is_part(greatest.a, Prim::Later, 0) && is_part(greatest.b, Prim::Earlier, 0)) ||
                       (is_part(greatest.a, Prim::Earlier, 0) && is_part(greatest.b, Prim::Later, 0)));
  if (!is_max) return false;
  // What is relative to the lesser of both, times a factor, and the other: smaller * factor + greater.
  const bool fused = sum.prim == Prim::Fma;
  if (!fused && sum.prim != Prim::Add) return false;
  const ExprNode smaller = pool[fused ? sum.a : pool[sum.a].a], greater = pool[fused ? sum.c : sum.b];
  if (!fused && pool[sum.a].prim != Prim::Mul) return false;
  return smaller.prim == Prim::Select && greater.prim == Prim::Select && smaller.a == greater.a &&
         is_part(smaller.b, Prim::Earlier, 1) && is_part(smaller.c, Prim::Later, 1) &&
         is_part(greater.b, Prim::Later, 1) && is_part(greater.c, Prim::Earlier, 1);
}

}  // namespace kiln::kernel
