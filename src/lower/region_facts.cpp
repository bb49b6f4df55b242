// What is known of a region before it has loops: its cost, its axes collapsed into groups, the schedule these lead
// to, and which phases need which values.
//
// Invariant: nothing here makes an expression, but for the offsets of the scratch buffers that keep_in_scratch adds.
#include "lower/expand.h"
#include "lower/region_lowering.h"
#include "support/check.h"

#include <algorithm>

namespace kiln::lower {
namespace {

constexpr float kCacheCost = 10;                   // primitives above which a value is kept for the next phase
constexpr std::int64_t kScratchLimit = 128 << 10;  // bytes of a row kept in scratch: within L2

bool is_computed(const Entry& e) { return e.kind == Entry::Kind::Op || e.kind == Entry::Kind::Pad; }

}  // namespace

void RegionLowering::measure() {
  for (EntryId id = 0; id < p_.entries.size(); ++id) {
    Entry& e = p_.entries[id];
    if (e.kind == Entry::Kind::Op) e.cost = target_.cost_of(static_cast<int>(g_[e.node].op));
    prims_ += e.kind == Entry::Kind::Load ? 1 : e.cost;
    phases_ = std::max(phases_, e.phase);
    widest_bytes_ = std::max(widest_bytes_, static_cast<int>(size_of(compute_type(g_[e.node].dtype))));
    if (e.kind == Entry::Kind::Reduce) reductions_.push_back({id, e.phase - 1});
  }
}

// ---- axes ---------------------------------------------------------------------------------------------------------

/// Calls f on every index that will be evaluated.
void RegionLowering::each_index(const std::function<void(const Index&)>& f) const {
  std::vector<bool> seen(static_cast<std::size_t>(p_.space.atom_count()));
  auto visit = [&](auto&& self, const Index& i) -> void {
    f(i);
    for (int t = 0; t < i.n; ++t) {
      const AtomId a = i.terms[t].atom;
      if (a < p_.space.axis_count() || seen[static_cast<std::size_t>(a)]) continue;
      seen[static_cast<std::size_t>(a)] = true;
      self(self, p_.space.atom(a).of);
    }
  };
  for (const Entry& e : p_.entries) {
    if (e.kind == Entry::Kind::Load || e.kind == Entry::Kind::Iota) visit(visit, e.index);
    if (e.kind == Entry::Kind::Reduce && has_position(g_[e.node].op)) visit(visit, e.index);
  }
  for (const PredicateLink& l : p_.links) visit(visit, l.predicate.t);
  for (const auto& o : p_.outputs) visit(visit, o.row ? p_.row_linear : p_.full_linear);
}

/// The axes longer than 1, each a group; never empty, and with a reduced one where there is a reduction.
std::vector<Group> RegionLowering::axes_as_groups() const {
  std::vector<Group> groups;
  for (int a = 0; a < p_.domain.rank(); ++a)
    if (p_.domain[a] != 1) groups.push_back({a, a, p_.domain[a], ((p_.reduced >> a) & 1) != 0});
  if (phases_ > 0 && std::none_of(groups.begin(), groups.end(), [](const Group& g) { return g.reduced; }))
    groups.insert(groups.begin(), {-1, -1, 1, true});  // a reduction over extents of 1 still has its loop
  if (groups.empty()) groups.push_back({0, 0, 1, false});
  return groups;
}

void RegionLowering::collapse() {
  for (const Group& g : axes_as_groups()) {
    bool joins = !groups_.empty() && groups_.back().reduced == g.reduced;
    if (joins) {
      const int outer = groups_.back().last;
      each_index([&](const Index& i) { joins &= i.coef(outer) == i.coef(g.first) * g.extent; });
    }
    if (joins) {
      groups_.back().last = g.last;
      groups_.back().extent *= g.extent;
    } else {
      groups_.push_back(g);
    }
  }
}

// ---- schedule -----------------------------------------------------------------------------------------------------

void RegionLowering::choose() {
  schedule::Facts f;
  std::vector<schedule::Facts::Axis> axes;
  for (const Group& g : groups_) axes.push_back({g.extent, g.reduced});
  f.axes = axes;
  f.phases = phases_;
  f.prims = static_cast<int>(prims_);
  f.widest_bytes = widest_bytes_;
  for (const auto& o : p_.outputs) {
    if (o.row) continue;
    f.stores_full |= p_.entries[o.entry].phase > 0;
    // Stores past the caches need whole cache lines: every row must begin on one.
    const std::int64_t row_bytes = groups_.back().extent * size_of(g_[o.node].dtype);
    if (groups_.size() == 1 || row_bytes % 64 == 0)
      f.out_bytes = std::max(f.out_bytes, g_[o.node].numel * size_of(g_[o.node].dtype));
  }
  f.across = axis_across();
  auto answer = schedule::schedule(f, target_);
  KILN_CHECK_THAT(std::holds_alternative<schedule::Schedule>(answer), std::get<std::string>(answer));
  s_ = std::get<schedule::Schedule>(answer);
}

/// The group that a strided load walks with the smallest stride, when that is not the last group; -1 without one.
int RegionLowering::axis_across() const {
  int across = -1;
  for (const Entry& e : p_.entries) {
    if (e.kind != Entry::Kind::Load) continue;
    std::int64_t least = std::abs(e.index.coef(groups_.back().last));
    if (least <= 1) continue;
    for (int g = 0; g < last_group(); ++g) {
      const std::int64_t stride = std::abs(e.index.coef(groups_[static_cast<std::size_t>(g)].last));
      if (stride == 0 || stride >= least) continue;
      least = stride;
      across = g;
    }
  }
  return across;
}

// ---- uses ---------------------------------------------------------------------------------------------------------

/// Which phases need which entries; expensive values needed again later are kept in scratch memory.
void RegionLowering::mark_uses() {
  std::vector<Entry>& es = p_.entries;
  for (const Reduction& r : reductions_) es[es[r.entry].in[0]].used_in |= 1u << r.phase;
  for (const auto& o : p_.outputs)
    if (!o.row) es[o.entry].used_in |= 1u << es[o.entry].phase;
  scratch_.assign(es.size(), -1);
  const bool may_keep = s_.form == Form::Rows && phases_ > 0;
  const std::vector<float> tree = may_keep ? tree_costs() : std::vector<float>{};
  for (auto id = static_cast<EntryId>(es.size()); id-- > 0;) {
    const Entry& e = es[id];
    if (!e.used_in || e.kind == Entry::Kind::Reduce) continue;
    std::uint32_t operands_used_in = e.used_in;
    const std::uint32_t first = e.used_in & (~e.used_in + 1);
    if (may_keep && e.used_in != first && tree[id] >= kCacheCost && is_computed(e) && keep_in_scratch(id))
      operands_used_in = first;
    p_.each_operand(e, [&](EntryId in) { es[in].used_in |= operands_used_in; });
  }
}

/// Primitives that each entry's value takes within one phase.
std::vector<float> RegionLowering::tree_costs() const {
  std::vector<float> tree(p_.entries.size());
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const Entry& e = p_.entries[i];
    tree[i] = e.cost;
    if (!is_computed(e)) continue;
    for (EntryId in : e.in)
      if (in != kNoEntry && p_.entries[in].kind != Entry::Kind::Reduce) tree[i] += tree[in];
  }
  return tree;
}

/// False if the row does not fit, or if keeping one value would do.
bool RegionLowering::keep_in_scratch(EntryId id) {
  std::int64_t row = 1;
  for (const Group& g : groups_)
    if (g.reduced) row *= g.extent;
  const DType type = compute_type(g_[p_.entries[id].node].dtype);
  const std::int64_t bytes = ceil_div(row * size_of(type), 64) * 64;
  if (out_.scratch_bytes + bytes > kScratchLimit || !varies(id)) return false;
  scratch_[id] = static_cast<std::int32_t>(scratch_buffer(type, bytes));
  return true;
}

/// Whether a value differs inside a row (it reaches a load or coordinate over a reduced axis).
bool RegionLowering::varies(EntryId id) const {
  const Entry& e = p_.entries[id];
  switch (e.kind) {
    case Entry::Kind::Scalar:
    case Entry::Kind::Reduce: return false;
    case Entry::Kind::Load:
    case Entry::Kind::Iota:
      for (const Group& g : groups_)
        if (g.reduced && e.index.coef(g.last) != 0) return true;
      for (int t = 0; t < e.index.n; ++t)
        if (e.index.terms[t].atom >= p_.space.axis_count()) return true;
      return false;
    case Entry::Kind::Pad: return true;
    case Entry::Kind::Op:
      for (EntryId in : e.in)
        if (in != kNoEntry && varies(in)) return true;
  }
  return false;
}

}  // namespace kiln::lower
