// The logsumexp of elements that are near when they are read again: one loop finds the greatest of them, the
// next the sum of their exponentials relative to it. Elements of a block are in the first cache then. One
// loop would keep a maximum and a sum of each lane and compare them at every element, and combining two lanes
// would take an exponential (log_add_exp in region_scan.cpp): half as many instructions again for a
// long row, and for a short one most of its time.
//
// Invariant: the sum decides about NaN, the greatest value about infinities.
#include "lower/exponentials.h"
#include "lower/region_lowering.h"
#include "lower/widened.h"
#include "math/expand.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace kiln::lower {
namespace {

constexpr float kMostAgain = 10;  // primitives of a value that is computed twice
// e^x of less would be subnormal, and is lost in any sum with e^0
constexpr double kLeastExponent = -87, kLeastExponent64 = -700;

}  // namespace

/// Whether a reduction is a logsumexp whose elements may be read twice.
bool RegionLowering::may_read_twice(const Reduction& r) const {
  if (target_.gpu || target_.strict || p_.nest || !scans_.empty() || !p_.loops.empty() ||
      ir::info(op_of(r)).fold != ir::Fold::LogAddExp)
    return false;
  return tree_costs()[p_.entries[r.entry].in[0]] <= kMostAgain;
}

/// Whether a reduction of this phase is done by two loops. In stripes what is read again comes from the
/// second cache.
bool RegionLowering::reads_twice(const Reduction& r) const {
  return runs_here(r) && s_.tile == 1 && may_read_twice(r);
}

std::uint32_t RegionLowering::new_acc(const AccDecl& decl) {
  const auto acc = static_cast<std::uint32_t>(k_.accs.size());
  k_.accs.push_back(AccDecl(decl));
  bounded_.resize(k_.accs.size());
  bounded_[acc] = true;
  return acc;
}

/// The type whose greatest value is found: that of elements in memory where they are halves.
DType RegionLowering::compared_type(EntryId id) const {
  const Entry* e = &p_.entries[id];
  if (e->kind == Entry::Kind::Op && g_[e->node].op == Op::cast) e = &p_.entries[e->in[0]];
  const DType type = g_[e->node].dtype;
  return e->kind == Entry::Kind::Load && is_half(type) ? type : compute_type(g_[p_.entries[id].node].dtype);
}

/// The greatest of values that are no NaN: an instruction, where Monoid::Max takes three.
AccDecl RegionLowering::greatest_decl(DType type) {
  kernel::CustomMonoid m;
  if (is_half(type)) {
    m = greatest_half(type);
    type = DType::UInt16;
  } else {
    const E greatest = leaf(Prim::Earlier, type, 0), x = leaf(Prim::Later, type, 0);
    m.types = {type};
    m.identity = {kernel::const_bits(type, -HUGE_VAL)};
    m.lift = {x.id};
    m.merge = {kernel::select(greatest < x, x, greatest).id};
    m.show = greatest.id;
  }
  const auto at =
      static_cast<std::uint32_t>(std::find(k_.customs.begin(), k_.customs.end(), m) - k_.customs.begin());
  if (at == k_.customs.size()) k_.customs.push_back(std::move(m));
  return {Monoid::Custom, type, at};
}

/// That of halves, by their bits, which are compared without being widened: the greatest as a signed number,
/// which is the greatest of those from +0 on, and the least as an unsigned number, which is the greatest
/// of the others where there are no such. A positive NaN is the greatest, a negative one is no candidate.
kernel::CustomMonoid RegionLowering::greatest_half(DType half) {
  constexpr std::uint64_t kNoneFromZero = 0x8000;
  const E above = leaf(Prim::Earlier, DType::Int16, 0), below = leaf(Prim::Earlier, DType::UInt16, 1);
  const E x = leaf(Prim::Later, DType::Int16, 0), y = leaf(Prim::Later, DType::UInt16, 1);
  const E bits = leaf(Prim::Later, DType::UInt16, 0);
  kernel::CustomMonoid m;
  m.types = {DType::Int16, DType::UInt16};
  m.identity = {kNoneFromZero, kernel::const_bits(half, -HUGE_VAL)};
  m.lift = {kernel::bitcast(bits, DType::Int16).id, bits.id};
  m.merge = {kernel::max(x, above).id, kernel::min(y, below).id};
  m.show =
      kernel::select(above < above.lit(DType::Int16, 0), below, kernel::bitcast(above, DType::UInt16)).id;
  return m;
}

/// An element as the first of two loops compares it; any other reduction takes it as it is.
E RegionLowering::compared(const Reduction& r, E x) {
  if (widens(g_, g_[p_.entries[r.entry].node])) return kernel::cast(x, DType::Float64);
  if (!r.relative || !is_half(r.relative->compared)) return x;
  return kernel::bitcast(narrow(x, r.relative->compared), DType::UInt16);
}

E RegionLowering::greatest_of(const Reduction::Relative& r) {
  if (!is_half(r.compared)) return acc_value(r.greatest, r.compared);
  const E bits = acc_value(r.greatest, DType::UInt16);
  return kernel::cast(kernel::bitcast(bits, r.compared), compute_type(r.compared));
}

static E greatest_finite(E like) {
  return like.lit(like.type() == DType::Float64 ? std::numeric_limits<double>::max()
                                                : std::numeric_limits<float>::max());
}

/// Infinity as the greatest finite number, and any other value.
E RegionLowering::finite(E x) {
  const E most = greatest_finite(x);
  return kernel::select(most < x, most, x);
}

/// Infinity counts as the greatest finite number, from which it is no NaN away; so does minus infinity as the
/// least, which only a block of nothing else has as its greatest. `halves`: numbers of a half type are made
/// relative to it.
RelativeTo RegionLowering::relative_to(E greatest, bool halves) {
  const E most = greatest_finite(greatest), base = kernel::select(greatest < -most, -most, finite(greatest));
  if (!halves || !scales_by_instruction(target_)) return {-base, {}};
  const E factor = scale_of_halves(base);
  return {-(base * factor), factor};
}

/// e^(x - greatest), with AVX-512 infinite where x is.
E RegionLowering::relative_exp(E x, const RelativeTo& to) {
  if (to.factor) return expand_exp2_of_sum_avx512(fma(x, to.factor, to.shift));
  const E apart = finite(x) + to.shift;
  const bool wide = x.type() == DType::Float64;
  if (wide && !k_.fma) return expand(ir::Op::exp, apart, {}, {}, DType::Float64);
  if (!wide && scales_by_instruction(target_)) return expand_exp_of_sum_avx512(x + to.shift);
  const E bound = x.lit(wide ? kLeastExponent64 : kLeastExponent);
  return expand_exp_of_sum(kernel::select(apart < bound, bound, apart));
}

/// Whether a reduction that reads twice reads numbers of a half type, which one instruction makes relative.
bool RegionLowering::takes_halves(const Reduction& r) const {
  const EntryId in = p_.entries[r.entry].in[0];
  return scales_by_instruction(target_) && compute_type(g_[p_.entries[in].node].dtype) == DType::Float32 &&
         is_half(compared_type(in));
}

/// The value of all elements. With an infinity among them the sum is some number, or NaN beside a NaN.
E RegionLowering::relative_total(const Reduction::Relative& r) {
  const DType type = k_.accs[r.sum].type;
  const E sum = acc_value(r.sum, type);
  return greatest_of(r) + expand(ir::Op::log, sum, {}, {}, type);
}

/// Whether nothing but logsumexps by two loops adds anything up in the current phase, along one axis.
bool RegionLowering::only_relative(Groups order) const {
  return order.size() == 1 &&
         std::ranges::any_of(reductions_, [&](const Reduction& r) { return reads_twice(r); }) &&
         std::ranges::none_of(reductions_,
                              [&](const Reduction& r) { return adds_in_blocks(r) && !reads_twice(r); });
}

/// The second loops of a phase, over the same elements as `nest`, which is empty and complete but for its
/// body. Pre: the environment is that of the first. Where `block` is not 0, so many elements of the last
/// group have a sum of their own, since each lane would add up too many one after the other.
void RegionLowering::sum_relative(Body& into, std::vector<LoopDecl> nest, int group, std::int64_t block) {
  reading_ = Reading::Again;
  if (block > 0) {
    const E count = {&k_.pool, nest.back().extent}, length = sum_block(block);
    LoopDecl blocks;
    blocks.var = new_var();
    blocks.extent = divide(count + length - konst(1), length).id;
    const E first = var(blocks.var) * length;
    nest.back().extent = kernel::min(count - first, length).id;
    place_lane(group, axis_[static_cast<std::size_t>(group)] + first);
    nest.insert(nest.end() - 1, std::move(blocks));
  }
  forget();
  Body added;
  for (const Reduction& r : reductions_) {
    if (!runs_here(r) || !r.relative) continue;
    const E x = operand(p_.entries[r.entry], 0);
    const E apart = relative_exp(x, relative_to(greatest_of(*r.relative), is_half(r.relative->compared)));
    const std::uint32_t sum = r.relative->sum, part = block > 0 ? new_acc(AccDecl(k_.accs[sum])) : sum;
    nest.front().accs.push_back(sum);
    if (block > 0) nest.back().accs.push_back(part);
    nest.back().body.push_back({Stmt::Kind::Update, part, kNoExpr, apart.id});
    if (block > 0)
      added.push_back({Stmt::Kind::Update, sum, kNoExpr, acc_value(part, k_.accs[part].type).id});
  }
  if (block > 0) {
    LoopDecl& blocks = nest[nest.size() - 2];
    blocks.body.push_back(loop(std::move(nest.back())));
    blocks.body.insert(blocks.body.end(), added.begin(), added.end());
    nest.pop_back();
  }
  into.push_back(loop(fold(std::move(nest))));
  reading_ = Reading::Once;
  forget();
}

/// What the second of two loops asks for ahead: the first waits for nothing then, while the second computes.
/// Likewise each vector of folded points in blocks.
std::int64_t RegionLowering::bytes_to_next_block(const Entry& e) const {
  if (folds_in_blocks())
    return s_.fold * s_.block * e.index.coef(groups_[static_cast<std::size_t>(s_.lane_axis) - 1].last) *
           size_of(g_[e.node].dtype);
  if (cut_group_ < 0) return bytes_to_later_row(e);
  const Group& cut = groups_[static_cast<std::size_t>(cut_group_)];
  const std::int64_t folded = s_.fold > 0 && cut_group_ == s_.lane_axis - 1 ? s_.fold : 1;
  return folded * cut_length_ * e.index.coef(cut.last) * size_of(g_[e.node].dtype);
}

}  // namespace kiln::lower
