// Scans. In a loop along the scanned axis a scan is an accumulator that is read while the loop runs. A long
// axis may be cut into chunks (region_chain.cpp).
//
// Invariant: the order in which values are combined depends on sizes and the width of the lanes only, never
// on threads.
#include "kernel/monoid.h"
#include "lower/exponentials.h"
#include "lower/region_lowering.h"
#include "math/expand.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace kiln::lower {

AccDecl RegionLowering::scan_decl(const Scan& s) {
  const GraphNode& n = g_[p_.entries[s.entry].node];
  return acc_decl(n.op, compute_type(n.dtype));
}

/// The monoid of log(e^x + e^y): the greatest value, and the sum of exponentials relative to it.
std::uint32_t RegionLowering::log_add_exp(DType type) {
  // Where the exponential is of a large number, and so the least exact, it is the least part of a sum.
  const auto function = [&](ir::Op op, E a) {
    const bool rough = op == ir::Op::exp && type == DType::Float32 && !target_.exact;
    return target_.gpu && !target_.strict ? expand_gpu(op, rough, a, {}, {}, type)
                                          : expand(op, a, {}, {}, type);
  };
  const E greatest = leaf(Prim::Earlier, type, 0), sum = leaf(Prim::Earlier, type, 1);
  const E x = leaf(Prim::Later, type, 0), x_sum = leaf(Prim::Later, type, 1);
  kernel::CustomMonoid m;
  m.types = {type, type};
  m.identity = {kernel::const_bits(type, -HUGE_VAL), kernel::const_bits(type, 0)};
  m.lift = {x.id, x.lit(1).id};
  // Beyond the bound the exponential is lost in any sum; it is kept a normal number there, because processors
  // handle others by microcode, and every identity (-inf) that meets a value would make one. The bound also
  // stands for the distance of equal infinities, which is NaN; their sums do not matter.
  const E apart = -kernel::abs(greatest - x), bound = x.lit(type == DType::Float64 ? -700 : -87);
  const E within = kernel::select(bound < apart, apart, bound);
  const bool own_exp = target_.gpu && !target_.strict, single = type == DType::Float32;
  const bool shorter = single && !target_.gpu && !target_.strict;
  const E smaller = shorter && !scales_by_instruction(target_) ? expand_exp_by_shift(within)
                    : own_exp || !single                       ? function(ir::Op::exp, within)
                                                               : expand_exp_in_range(within);
  const E grows = greatest < x;
  const E of_greater = kernel::select(grows, x_sum, sum), of_smaller = kernel::select(grows, sum, x_sum);
  m.merge = {kernel::max(x, greatest).id,
             (k_.fma ? kernel::fma(of_smaller, smaller, of_greater) : of_smaller * smaller + of_greater).id};
  // The sum is 0 of nothing but minus infinities, else at least 1 or NaN.
  m.show = (greatest + (shorter ? expand_log_from_one(sum) : function(ir::Op::log, sum))).id;
  const auto at =
      static_cast<std::uint32_t>(std::find(k_.customs.begin(), k_.customs.end(), m) - k_.customs.begin());
  if (at == k_.customs.size()) k_.customs.push_back(std::move(m));
  return at;
}

/// Whether a scan is computed in the current phase: somebody needs it, and it was not kept from an earlier
/// one.
bool RegionLowering::runs_now(const Scan& s) const {
  const Entry& e = p_.entries[s.entry];
  return ((e.used_in >> phase_) & 1) != 0 && !(scratch_[s.entry] >= 0 && phase_ > first_phase(e));
}

/// Whether an accumulator of a GPU begins with what comes before its first element: to merge that into each
/// running value would take as long as the scan.
bool RegionLowering::begins_behind(const AccDecl& acc) const {
  return target_.gpu && acc.monoid == Monoid::Custom;
}

void RegionLowering::declare_scans(LoopDecl& outermost) {
  std::vector<kernel::ExprId> behind;
  for (Scan& s : scans_) {
    if (!runs_now(s)) continue;
    const AccDecl acc = scan_decl(s);
    s.acc = static_cast<std::uint32_t>(k_.accs.size());
    k_.accs.push_back(acc);
    outermost.accs.push_back(s.acc);
    behind.resize(outermost.accs.size(), kNoExpr);
    const bool in_chunks = item_ && begins_behind(acc);
    E first;
    if (s.joined != kNoEntry) first = build(s.start);
    if (in_chunks) {
      const E before = load(s.prefix, acc.type, item_);
      first = first ? kernel::merge(k_, acc, before, first) : before;
    }
    if (first) behind.back() = first.id;
  }
  if (std::ranges::any_of(behind, [](kernel::ExprId e) { return e != kNoExpr; }))
    outermost.inits = std::move(behind);
}

/// Finds the scans that begin with a value which is combined with each of theirs.
void RegionLowering::find_starts() {
  if (!target_.gpu || target_.strict || phases_ > 0) return;
  std::vector<int> readers(p_.entries.size());
  for (const Entry& e : p_.entries) p_.each_operand(e, [&](EntryId in) { ++readers[in]; });
  for (const Pulled::Output& o : p_.outputs) ++readers[o.entry];
  const auto stands = [&](EntryId id) {
    const Entry& e = p_.entries[id];
    return e.kind == Entry::Kind::Load && e.predicates < 0 &&
           std::ranges::all_of(
               std::span(e.index.terms, static_cast<std::size_t>(e.index.n)),
               [&](const Term& t) {
                 return t.atom < p_.space.axis_count() && (p_.reduced >> t.atom & 1) == 0;
               });
  };
  for (Scan& s : scans_) {
    if (readers[s.entry] != 1 || ir::info(g_[p_.entries[s.entry].node].op).fold != ir::Fold::LogAddExp)
      continue;
    for (EntryId id = s.entry + 1; id < p_.entries.size(); ++id) {
      Entry& e = p_.entries[id];
      if (e.kind != Entry::Kind::Op || g_[e.node].op != Op::logaddexp) continue;
      const int other = e.in[0] == s.entry ? 1 : e.in[1] == s.entry ? 0 : -1;
      if (other < 0 || !stands(e.in[other])) continue;
      s.joined = id;
      s.start = e.in[other];
      prims_ -= std::exchange(e.cost, 0.0f);
    }
  }
}

/// Updates the scans with the current element; from here on they have their values. A scan of a scan comes
/// after it.
void RegionLowering::scan_updates(Body& body) {
  for (const Scan& s : scans_) {
    if (!runs_now(s)) continue;
    const Entry& e = p_.entries[s.entry];
    const AccDecl acc = scan_decl(s);
    Stmt update{Stmt::Kind::Update, s.acc};
    update.value = build(e.in[0]).id;
    body.push_back(update);
    const Prim prim = ir::attributes<ir::Scan>(g_[e.node]).exclusive ? Prim::Before : Prim::Running;
    const E within = leaf(prim, acc.type, s.acc);
    const bool merges = item_ && !begins_behind(acc);
    const E value = merges ? kernel::merge(k_, acc, within, load(s.prefix, acc.type, item_)) : within;
    memo_[s.entry] = rounds(e) ? rounded(value, g_[e.node].dtype) : value;
    if (s.joined != kNoEntry) memo_[s.joined] = value;
    note_origin(memo_[s.entry], e.node);
  }
}

}  // namespace kiln::lower
