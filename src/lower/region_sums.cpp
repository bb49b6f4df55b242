// The accumulators of a phase's reductions: which of them a loop over blocks has two of, one for a block and
// one for what the blocks have found, and in which type the latter is.
//
// Invariant: an accumulator begins in one loop and is updated in the loops inside it.
#include "lower/region_lowering.h"
#include "lower/widened.h"
#include "math/expand.h"

#include <algorithm>

namespace kiln::lower {

/// Whether a reduction of the current phase adds numbers, so that its rounding errors grow with its length.
/// Sums on a GPU are compensated instead, where elements are waited for.
bool RegionLowering::adds_in_blocks(const Reduction& r) const {
  const AccDecl& a = k_.accs[r.acc];
  const bool compensated =
      target_.gpu && !target_.strict && s_.tile == 1 && !loads_repeat_;  // else those of blocks, few
  return runs_here(r) && is_float(a.type) && !widens(g_, g_[p_.entries[r.entry].node]) &&
         (a.monoid == Monoid::Custom || (a.monoid == Monoid::Sum && !compensated));
}

/// Whether the current phase's sums of a tile's results are each one block of `elements` at most, which then
/// need no compensation.
bool RegionLowering::bound_sums(std::int64_t elements) {
  if (!target_.gpu || target_.strict || s_.tile == 1 || elements > kAddedInOrder) return false;
  bounded_.resize(k_.accs.size());
  for (const std::vector<std::uint32_t>& accs : tile_accs_)
    for (std::size_t i = 0; i < reductions_.size(); ++i)
      if (runs_here(reductions_[i])) bounded_[accs[i]] = true;
  return true;
}

/// Whether any reduction of the current phase adds in blocks. `bounded`: sums of values do not.
bool RegionLowering::adds_in_blocks(bool bounded) const {
  return std::ranges::any_of(reductions_, [&](const Reduction& r) {
    return adds_in_blocks(r) && !(bounded && k_.accs[r.acc].monoid == Monoid::Sum);
  });
}

/// The accumulator in which the values of blocks and chunks are combined: in Float64 for sums of Float32,
/// since there are many, and few of them an element, and where the values are Float64.
AccDecl RegionLowering::total_decl(const Reduction& r, const AccDecl& a) {
  if (widens(g_, g_[p_.entries[r.entry].node])) return acc_decl(op_of(r), DType::Float64);
  const bool adds = a.monoid == Monoid::Custom || a.monoid == Monoid::Sum;
  if (!adds || a.type != DType::Float32 || (target_.gpu && !target_.strict)) return a;
  return acc_decl(op_of(r), DType::Float64);
}

/// The final value of a reduction's accumulator, in the type that is computed with.
E RegionLowering::total_of(std::uint32_t acc, const GraphNode& n) {
  const DType type = compute_type(n.dtype);
  return has_position(n.op) ? acc_value(acc, type) : kernel::cast(acc_value(acc, k_.accs[acc].type), type);
}

E RegionLowering::total_of(const Reduction& r) {
  const GraphNode& n = g_[p_.entries[r.entry].node];
  return r.relative ? kernel::cast(relative_total(*r.relative), compute_type(n.dtype)) : total_of(r.acc, n);
}

/// Gives the loops of a phase their accumulators: the outermost has those of whole rows, the loop `inner`
/// those of a block. Returns what the innermost updates, for each row of the tile of results and each
/// reduction.
std::vector<std::vector<std::uint32_t>> RegionLowering::begin_reductions(std::vector<LoopDecl>& nest,
                                                                         std::size_t inner, bool cut) {
  std::vector<std::vector<std::uint32_t>> inside = tile_accs_;
  for (std::size_t row = 0; row < tile_accs_.size(); ++row)
    for (std::size_t i = 0; i < reductions_.size(); ++i) {
      Reduction& r = reductions_[i];
      const std::uint32_t whole = tile_accs_[row][i];
      if (!runs_here(r)) continue;
      if (reads_twice(r)) {
        const DType type = k_.accs[whole].type, compared = compared_type(p_.entries[r.entry].in[0]);
        r.relative = {new_acc(greatest_decl(compared)), new_acc({Monoid::Sum, type}), compared};
        if (cut) nest.front().accs.push_back(whole);
        nest[inner].accs.push_back(inside[row][i] = r.relative->greatest);
        continue;
      }
      nest.front().accs.push_back(whole);
      if (!cut || !adds_in_blocks(r)) continue;
      inside[row][i] = new_acc(acc_decl(op_of(r), k_.accs[tile_accs_[0][i]].type));
      nest[inner].accs.push_back(inside[row][i]);
    }
  return inside;
}

/// What a block has found, added to what those before it have.
RegionLowering::Body RegionLowering::add_blocks(const std::vector<std::vector<std::uint32_t>>& inside) {
  Body added;
  for (std::size_t row = 0; row < tile_accs_.size(); ++row)
    for (std::size_t i = 0; i < reductions_.size(); ++i) {
      const Reduction& r = reductions_[i];
      const std::uint32_t whole = tile_accs_[row][i], part = inside[row][i];
      if (part == whole) continue;
      const DType from = k_.accs[part].type;
      k_.accs[whole] = total_decl(r, k_.accs[whole]);
      const E value = r.relative ? relative_total(*r.relative) : acc_value(part, from);
      added.push_back({Stmt::Kind::Update, whole, kNoExpr, kernel::cast(value, k_.accs[whole].type).id});
    }
  return added;
}

}  // namespace kiln::lower
