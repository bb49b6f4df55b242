// Which phases need which values, and which of these are kept in scratch memory for later phases instead of
// being computed again.
//
// Invariant: what is kept of an element is stored in the first phase that needs it and read in later ones, in
// loops over the same elements. Nothing is kept that the second cache has no room for.
#include "lower/region_lowering.h"
#include "math/expand.h"

#include <algorithm>

namespace kiln::lower {
namespace {

constexpr float kCacheCost = 10;  // primitives above which a value is kept for the next phase
constexpr float kLoopCost = 1000;
constexpr std::int64_t kSlabBehind = 128;          // bytes of the longest vector
constexpr std::int64_t kScratchLimit = 128 << 10;  // bytes of a row kept in scratch: within L2
constexpr int kRegisterLimit = 96;                 // values a GPU thread keeps

bool is_computed(const Entry& e) {
  return e.kind == Entry::Kind::Op || e.kind == Entry::Kind::Pad || e.kind == Entry::Kind::Scan ||
         e.kind == Entry::Kind::LoopResult;
}

}  // namespace

/// Whether phases may keep values for later ones: those of rows, and of columns whose lanes are in registers
/// or that are read row by row.
bool RegionLowering::may_keep() const {
  if (phases_ == 0) return false;
  if (target_.gpu) return s_.form == Form::Rows && s_.steps > 0;
  return s_.form == Form::Bunch || (s_.form == Form::Rows && s_.tile == 1) || may_keep_columns();
}

/// Whether these are the columns of a CPU.
bool RegionLowering::may_keep_columns() const {
  return !target_.gpu && scans_.empty() && p_.loops.empty() && s_.tile == 1 && s_.chunk == 0 &&
         (s_.form == Form::Stripes || s_.form == Form::Columns);
}

/// Which phases need which entries. `keep` is asked about expensive values that later phases need again, and
/// says whether the first of these phases keeps them.
void RegionLowering::mark_uses(const std::function<bool(EntryId)>& keep) {
  std::vector<Entry>& es = p_.entries;
  for (Entry& e : es) e.used_in = 0;
  for (const Reduction& r : reductions_) es[es[r.entry].in[0]].used_in |= 1u << r.phase;
  for (const auto& o : p_.outputs) {
    if (!o.row) es[o.entry].used_in |= 1u << es[o.entry].phase;
    p_.space.each_value(o.at, [&](EntryId in) { es[in].used_in |= 1u << es[o.entry].phase; });
  }
  const std::vector<float> tree = keep ? tree_costs() : std::vector<float>{};
  for (auto id = static_cast<EntryId>(es.size()); id-- > 0;) {
    const Entry& e = es[id];
    if (!e.used_in || e.kind == Entry::Kind::Reduce) continue;
    std::uint32_t operands_used_in = e.used_in;
    const std::uint32_t first = e.used_in & (~e.used_in + 1);
    // A GPU has what it loaded in registers, and one register is enough for what is made of several.
    const auto worth = [&] {
      if (is_computed(e)) return tree[id] >= kCacheCost || (target_.gpu && loads_below(id) > 1);
      return target_.gpu && e.kind == Entry::Kind::Load;
    };
    if (keep && !e.inside && e.used_in != first && worth() && keep(id)) operands_used_in = first;
    p_.each_operand(e, [&](EntryId in) { es[in].used_in |= operands_used_in; });
  }
}

void RegionLowering::mark_uses() {
  scratch_.assign(p_.entries.size(), -1);
  mark_uses(may_keep() ? [this](EntryId id) { return keep_in_scratch(id); } : std::function<bool(EntryId)>());
}

/// Bytes, of each element, of the values that a CPU's phases would keep for later ones.
int RegionLowering::bytes_to_keep() {
  int bytes = 0;
  mark_uses([&](EntryId id) {
    if (!varies(id)) return false;
    bytes += static_cast<int>(size_of(compute_type(g_[p_.entries[id].node].dtype)));
    return true;
  });
  return bytes;
}

/// Loads, along the row, that a value is made of; two stands for more.
int RegionLowering::loads_below(EntryId id) {
  std::vector<EntryId> stack{id};
  std::vector<bool> seen(p_.entries.size());
  int found = 0;
  while (!stack.empty() && found < 2) {
    const EntryId at = stack.back();
    stack.pop_back();
    if (seen[at]) continue;
    seen[at] = true;
    const Entry& e = p_.entries[at];
    found += e.kind == Entry::Kind::Load && varies(at);
    if (is_computed(e)) p_.each_operand(e, [&](EntryId in) { stack.push_back(in); });
  }
  return found;
}

/// Primitives that each entry's value takes within one phase.
std::vector<float> RegionLowering::tree_costs() const {
  std::vector<float> tree(p_.entries.size());
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const Entry& e = p_.entries[i];
    tree[i] = e.kind == Entry::Kind::LoopResult ? kLoopCost : e.cost;
    if (!is_computed(e)) continue;
    for (EntryId in : e.in)
      if (in != kNoEntry && p_.entries[in].kind != Entry::Kind::Reduce) tree[i] += tree[in];
  }
  return tree;
}

/// Elements of the buffer that keeps a value of this type.
std::int64_t RegionLowering::kept_elements(DType type) const {
  if (s_.form == Form::Bunch && !target_.gpu) return product(slab_groups()) * tile_pitch(type);
  if (may_keep_columns()) {
    std::vector<int> rows = reduced_groups();
    if (s_.fold > 0) std::erase_if(rows, [&](int g) { return g >= s_.lane_axis; });
    return product(rows) * kept_pitch();
  }
  return s_.batch > 0 ? s_.batch * row_pitch(type) : product(reduced_groups());
}

/// False if the row does not fit, or if keeping one value would do.
bool RegionLowering::keep_in_scratch(EntryId id) {
  const DType type = compute_type(g_[p_.entries[id].node].dtype);
  // The last vector of each of a slab's runs may be stored whole.
  const std::int64_t behind = s_.form == Form::Slab ? kSlabBehind : 0,
                     bytes = ceil_div(kept_elements(type) * size_of(type) + behind, 64) * 64,
                     most =
                         may_keep_columns() ? std::max(kScratchLimit, target_.l2_bytes / 2) : kScratchLimit;
  if (!varies(id)) return false;
  if (target_.gpu) {
    const auto kept =
        std::count_if(scratch_.begin(), scratch_.end(), [](std::int32_t buffer) { return buffer >= 0; });
    if ((kept + 1) * s_.steps * s_.lanes > kRegisterLimit) return false;
  } else if (out_.scratch_bytes + bytes > most) {
    return false;
  }
  scratch_[id] = static_cast<std::int32_t>(scratch_buffer(type, bytes));
  return true;
}

/// Stores the values that the current phase keeps for later ones.
void RegionLowering::keep_values(Body& body) {
  if (s_.form == Form::Slab) return;
  for (EntryId id = 0; id < p_.entries.size(); ++id) {
    if (scratch_[id] < 0 || first_phase(p_.entries[id]) != phase_) continue;
    const auto buffer = static_cast<std::uint32_t>(scratch_[id]);
    const E at = scratch_index(id, k_.buffers[buffer].dtype);
    body.push_back({Stmt::Kind::Store, buffer, at.id, build(id).id});
  }
}

/// Elements from a row of kept columns to the next.
std::int64_t RegionLowering::kept_pitch() const {
  const std::int64_t columns = product(column_groups());
  return s_.fold > 0 ? columns : ceil_div(std::min(s_.block, columns), s_.lanes) * s_.lanes;
}

/// Where the element at hand of a column is in scratch memory.
E RegionLowering::kept_index() {
  std::vector<int> rows = inner_ ? std::vector<int>{} : reduced_groups();
  if (s_.fold > 0) std::erase_if(rows, [&](int g) { return g >= s_.lane_axis - 1; });
  const E row = inner_ ? inner_ : place_among(rows);
  if (s_.fold == 0) return row * size(kRowPitch, kept_pitch()) + lane_;
  // A vector's elements lie side by side, in the order of memory.
  return rows.empty() ? position_ : row * size(kSlab, product({s_.lane_axis - 1}) * kept_pitch()) + position_;
}

/// On a CPU a slab keeps the expensive values that it stores, element by element, for the reductions of them.
void RegionLowering::keep_outputs() {
  if (target_.gpu || !groups_of(0, false).empty()) return;
  std::vector<bool> read(p_.entries.size());
  for (const Reduction& r : reductions_) read[p_.entries[r.entry].in[0]] = true;
  for (auto id = static_cast<EntryId>(read.size()); id-- > 0;)
    if (read[id] && p_.entries[id].kind == Entry::Kind::Op)
      p_.each_operand(p_.entries[id], [&](EntryId in) { read[in] = true; });
  const std::vector<float> costs = tree_costs();
  for (const Pulled::Output& o : p_.outputs) {
    const Entry& e = p_.entries[o.entry];
    if (o.level == 0 && read[o.entry] && scratch_[o.entry] < 0 && e.kind == Entry::Kind::Op && !e.inside &&
        costs[o.entry] >= kCacheCost)
      keep_in_scratch(o.entry);
  }
}

}  // namespace kiln::lower
