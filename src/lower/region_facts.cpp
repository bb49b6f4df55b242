// What is known of a region before it has loops: its cost, its axes collapsed into groups, and the schedule
// these lead to.
//
// Invariant: nothing here makes an expression.
#include "lower/region_pairs.h"
#include "lower/widened.h"
#include "math/expand.h"
#include "schedule/schedule_gpu.h"
#include "schedule/variants.h"
#include "support/check.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <span>

namespace kiln::lower {
namespace {

constexpr std::int64_t kMuchSmaller = 8;  // times: an operand that caches keep while others pass
/// Indices that are made before they are counted: the next ones' operands come from memory meanwhile, of
/// which the loop over a block has asked for no more.
constexpr std::int64_t kCountedBlock = 1024;

/// Whether a region makes nothing but indices of a scatter.
bool makes_indices(const ir::Graph& g, const Pulled& p) {
  constexpr std::size_t kIndices = 1;
  return p.outputs.size() == 1 && std::ranges::any_of(g.nodes, [&](const ir::GraphNode& n) {
           return n.op == Op::scatter && n.in[kIndices] == p.outputs.front().node;
         });
}

/// Whether a scan is made of another.
bool has_scan_of_scan(const Pulled& p) {
  std::vector<bool> scanned(p.entries.size());  // is a scan, or made of one
  for (EntryId id = 0; id < p.entries.size(); ++id) {
    const Entry& e = p.entries[id];
    p.each_operand(e, [&](EntryId in) { scanned[id] = scanned[id] || scanned[in]; });
    if (e.kind != Entry::Kind::Scan) continue;
    if (scanned[id]) return true;
    scanned[id] = true;
  }
  return false;
}

/// The first group from which on a register's lanes of elements in row-major order, and what lies between
/// them, are within two registers of what a load of elements of `size` bytes reads. `dense` stays true where
/// little lies between them.
int near_from(const Index& index, std::int64_t size, std::int64_t lanes, const std::vector<Group>& groups,
              bool& dense) {
  constexpr std::int64_t kRegister = 64;  // bytes
  std::int64_t walked = 0, elements = 1;
  int near = static_cast<int>(groups.size());
  for (; near > 0; --near) {
    const int g = near - 1;
    const Group& group = groups[static_cast<std::size_t>(g)];
    const std::int64_t step = index.coef(group.last), further = walked + step * (group.extent - 1);
    if (std::abs(step - walked) * size > kRegister) break;
    if (std::abs(further) * size * lanes > 2 * kRegister * elements * group.extent) break;
    walked = further;
    elements *= group.extent;
  }
  dense &= 4 * std::abs(walked) <= 5 * elements;
  return near;
}

/// Whether an index walks the last two groups as one.
bool rows_adjoin(const Index& index, const std::vector<Group>& groups) {
  if (groups.size() < 2) return true;
  const Group &outer = groups[groups.size() - 2], &last = groups.back();
  return index.coef(outer.last) == index.coef(last.last) * last.extent;
}

/// The group that a strided load walks with the smallest stride, when that is not the last group; -1 without
/// one.
int axis_across(const Pulled& p, const std::vector<Group>& groups) {
  int across = -1;
  for (const Entry& e : p.entries) {
    if (e.kind != Entry::Kind::Load) continue;
    std::int64_t least = std::abs(e.index.coef(groups.back().last));
    if (least <= 1) continue;
    for (int g = 0; g + 1 < static_cast<int>(groups.size()); ++g) {
      const std::int64_t stride = std::abs(e.index.coef(groups[static_cast<std::size_t>(g)].last));
      if (stride == 0 || stride >= least) continue;
      least = stride;
      across = g;
    }
  }
  return across;
}

}  // namespace

std::uint64_t axes_changing(const Pulled& p, const Index& index, bool inside_rows) {
  std::vector<bool> seen(p.entries.size());
  std::uint64_t axes = 0;
  const auto visit = [&](const auto& self, EntryId id) -> void {
    if (seen[id]) return;
    seen[id] = true;
    const Entry& e = p.entries[id];
    if (inside_rows && e.kind == Entry::Kind::Reduce) return;
    const bool known = e.kind == Entry::Kind::Load || e.kind == Entry::Kind::Iota ||
                       e.kind == Entry::Kind::Op || e.kind == Entry::Kind::Scalar;
    if (!known) axes = ~std::uint64_t{0};
    for (const Term& t : std::span(e.index.terms, static_cast<std::size_t>(e.index.n)))
      axes |= p.space.atom(t.atom).axes;
    p.space.each_value(e.index, [&](EntryId in) { self(self, in); });
    p.each_operand(e, [&](EntryId in) { self(self, in); });
  };
  p.space.each_value(index, [&](EntryId in) { visit(visit, in); });
  return axes;
}

int first_jump(const Pulled& p, const std::vector<Group>& groups, const Index& index) {
  const std::uint64_t axes = axes_changing(p, index, false);
  const auto changes = [&](const Group& g) { return (g.axes & axes) != 0; };
  return static_cast<int>(std::find_if(groups.begin(), groups.end(), changes) - groups.begin());
}

namespace {

/// What all places along the last group are multiples of at which a guard changes; 0: none does inside a row.
std::int64_t guards_apart(const Pulled& pulled, const std::vector<Group>& groups) {
  const Group& last = groups.back();
  std::int64_t apart = 0;
  for (const PredicateLink& l : pulled.links) {
    const Predicate& p = l.predicate;
    const bool differs = std::ranges::any_of(p.t.terms, p.t.terms + p.t.n, [&](const Term& t) {
      const Atom& atom = pulled.space.atom(t.atom);
      return atom.jumps || (atom.axes & last.axes) != 0;
    });
    if (!differs) continue;
    const std::int64_t along = p.t.coef(last.last);
    if (p.t.n != 1 || std::abs(along) != 1 || p.step != 1) return 1;
    for (const std::int64_t edge : {-p.t.c, p.extent - p.t.c})
      if (const std::int64_t at = along > 0 ? edge : 1 - edge; at > 0 && at < last.extent)
        apart = std::gcd(apart, at);
  }
  return apart;
}

/// Bytes of the arrays that a region reads and writes; of what it slices no more than its points.
std::int64_t touched_bytes(const plan::Graph& g, const Pulled& p) {
  std::vector<ir::NodeId> arrays;
  for (const Entry& e : p.entries)
    if (e.kind == Entry::Kind::Load) arrays.push_back(e.node);
  for (const Pulled::Output& o : p.outputs) arrays.push_back(o.node);
  std::ranges::sort(arrays);
  const auto again = std::ranges::unique(arrays);
  arrays.erase(again.begin(), again.end());
  std::int64_t bytes = 0;
  for (const ir::NodeId n : arrays)
    bytes += std::min<std::int64_t>(g[n].numel, p.domain.numel()) * size_of(g[n].dtype);
  return bytes;
}

/// Values that are there to be compared and for nothing else: labels, and the columns that they are compared
/// with. Wide ones take two registers for as many lanes as others have in one, and their comparison one mask.
std::vector<bool> only_compared(const plan::Graph& g, const Pulled& p) {
  std::vector<bool> out;
  for (const Entry& e : p.entries)
    out.push_back(e.kind == Entry::Kind::Load || e.kind == Entry::Kind::Iota ||
                  e.kind == Entry::Kind::Scalar);
  for (const auto& o : p.outputs) out[o.entry] = false;
  for (const Entry& e : p.entries) {
    if (e.kind == Entry::Kind::Op && ir::info(g[e.node].op).rule == ir::TypeRule::Compare) continue;
    p.each_operand(e, [&](EntryId in) { out[in] = false; });
  }
  return out;
}

}  // namespace

void RegionLowering::measure() {
  // The 64-bit indices of random draws do not count for the lanes: their bits are made for several lanes at
  // once.
  std::vector<bool> only_draws(p_.entries.size(), true);
  for (const auto& o : p_.outputs) only_draws[o.entry] = false;
  for (const Entry& e : p_.entries) {
    const bool draws = e.kind == Entry::Kind::Op && g_[e.node].op == Op::philox;
    random_ |= draws || (e.kind == Entry::Kind::Op && g_[e.node].op == Op::philox64);
    if (!draws) p_.each_operand(e, [&](EntryId in) { only_draws[in] = false; });
  }
  // Nor do starts of slices, which are the same at every point.
  std::vector<bool> starts(p_.entries.size());
  for (AtomId a = 0; a < p_.space.atom_count(); ++a)
    if (p_.space.atom(a).kind == Atom::Kind::Position) starts[p_.space.atom(a).entry] = true;
  for (const Entry& e : p_.entries)
    for (EntryId in : e.in)
      if (in != kNoEntry) starts[in] = false;
  const std::vector<bool> compared = only_compared(g_, p_),
                          of_rows = target_.gpu && !p_.nest ? made_of_rows(p_)
                                                            : std::vector<bool>(p_.entries.size());
  for (EntryId id = 0; id < p_.entries.size(); ++id) {
    Entry& e = p_.entries[id];
    if (e.kind == Entry::Kind::Op || e.kind == Entry::Kind::Scan)
      e.cost = target_.cost_of(static_cast<int>(g_[e.node].op));
    prims_ += e.kind == Entry::Kind::Load ? 1 : e.cost;
    phases_ = std::max(phases_, e.phase);
    KILN_CHECK_THAT(phases_ < 32);                    // bits of Entry::used_in; the planner caps reductions
    const bool innermost = !p_.nest || e.phase == 0;  // what further levels make is not on its lanes
    // Positions below 2^31 are kept in 32 bits: see complete().
    const bool narrow = e.kind == Entry::Kind::Reduce && has_position(g_[e.node].op) &&
                        static_cast<double>(g_[g_[e.node].in[0]].numel) < 0x1p31;
    const auto bytes = static_cast<int>(size_of(compute_type(g_[e.node].dtype)));
    if (!only_draws[id] && !starts[id] && innermost && !of_rows[id])
      widest_bytes_ =
          std::max(widest_bytes_, (compared[id] || narrow) && !target_.gpu ? std::min(bytes, 4) : bytes);
    if (e.kind == Entry::Kind::Reduce) reductions_.push_back({id, e.phase - 1, e.place});
    if (e.kind == Entry::Kind::Scan) scans_.push_back({id});
  }
  find_starts();
}

// ---- schedule ----

constexpr int kScannedParts = 2;  // registers of a logcumsumexp

schedule::Facts RegionLowering::facts(std::span<const schedule::Facts::Axis> axes) {
  schedule::Facts f;
  f.axes = axes;
  f.phases = phases_;
  f.levels = p_.nest ? static_cast<int>(p_.places.size()) - 1 : 1;
  f.both_ways = row_place_ >= 0;
  f.slab = !p_.nest && p_.places.size() > 2 && !f.both_ways;
  f.scans = !scans_.empty();
  f.scans_of_scans = has_scan_of_scan(p_);
  for (const Reduction& r : reductions_) f.kept += registers_of(r), f.positions |= has_position(op_of(r));
  for (const Reduction& r : reductions_) {
    f.in_parts |= ir::info(op_of(r)).fold == ir::Fold::LogAddExp && !may_read_twice(r);
    f.read_twice += may_read_twice(r);
  }
  for (const Scan& s : scans_)
    if (ir::info(g_[p_.entries[s.entry].node].op).fold == ir::Fold::LogAddExp) f.kept += kScannedParts;
  for (const LoopRun& run : p_.loops) f.states = std::max(f.states, static_cast<int>(run.states.size()));
  f.prims = static_cast<int>(prims_);
  f.row_prims = static_cast<int>(row_prims());
  f.widest_bytes = widest_bytes_;
  f.random = random_;
  count_results(f);
  f.touched_bytes = target_.gpu ? 0 : touched_bytes(g_, p_);
  if (!target_.gpu && (phases_ > 1 || f.stores_full)) f.kept_bytes = bytes_to_keep();
  f.across = axis_across(p_, groups_);
  if (target_.gpu) f.vector = vector_elements();
  if (target_.gpu && phases_ == 0 && scans_.empty()) {
    f.flat_vector = flat_vector_elements();
    find_windows(f);
  }
  if (target_.gpu && !target_.strict && (phases_ > 0 || !scans_.empty()) && groups_.back().reduced &&
      std::ranges::is_partitioned(groups_, [](const Group& g) { return !g.reduced; }) &&
      std::ranges::none_of(groups_, [](const Group& g) { return g.backwards; }))
    f.row_vector = flat_vector_elements(true);
  if (target_.gpu && scans_.empty() && f.window + f.window_rounds == 0 && !groups_.back().reduced &&
      loads_elements(f))
    f.vector = f.flat_vector = 1;
  const auto adjacent = [&](const Pulled::Output& o) {
    return o.row || std::abs(o.at.coef(groups_.back().last)) == 1;
  };
  if (target_.gpu && std::ranges::none_of(p_.outputs, adjacent)) f.vector = f.flat_vector = 1;
  if (f.across >= 0) find_tile(f);
  count_loads(f);
  for (const PredicateLink& l : p_.links) f.guarded |= walks(l.predicate.t, groups_.back());
  if (f.guarded && !target_.gpu) f.guards_apart = guards_apart(p_, groups_);
  f.apart = axis_apart();
  f.folds = axis_folded();
  if (target_.gpu && f.folds >= 0) f.grouped_vector = grouped_vector_elements(f.folds);
  f.repeated = axis_repeated();
  loads_repeat_ = all_loads_repeat();
  if (!target_.gpu && !scans_.empty()) find_backwards(p_, groups_);
  find_bunch(f);
  find_strips(f);
  return f;
}

/// Bytes of what the region writes, and which of it may be stored past the caches.
void RegionLowering::count_results(schedule::Facts& f) const {
  for (const auto& o : p_.outputs) {
    const std::int64_t size = size_of(g_[o.node].dtype), bytes = g_[o.node].numel * size;
    f.rows_apart |= !rows_adjoin(o.at, groups_);
    if (o.row && !groups_.back().reduced && o.at.coef(groups_.back().last) == 1) {
      f.row_bytes_out = std::max(f.row_bytes_out, bytes);
      f.row_narrowest = std::min(f.row_narrowest, static_cast<int>(size));
    }
    if (o.row) continue;
    f.stores_full |= p_.entries[o.entry].phase > 0;
    f.out_narrowest = std::min(f.out_narrowest, static_cast<int>(size));
    if (adjoins(o.at)) f.adjoining_bytes = std::max(f.adjoining_bytes, bytes);
    // Stores past the caches need whole cache lines: every row must begin on one, or end on one if it is
    // walked from its end, or be long.
    const std::int64_t along = p_.full_linear().coef(groups_.back().last);
    const bool one_row = groups_.size() == 1 && along >= 0;
    if ((std::abs(along) <= 1 && (one_row || groups_.back().extent * size % 64 == 0)) ||
        stores_long_rows(o.node))
      f.out_bytes = std::max(f.out_bytes, bytes);
  }
}

/// Whether rows read an operand again and again, so that caches keep it while others pass.
bool RegionLowering::passes_often(const Entry& e) const {
  std::int64_t points = 1;
  for (const Group& g : groups_) points *= g.extent;
  return g_[e.node].numel < points / kMuchSmaller;
}

/// Operands in memory: how many, how much of them a point reads, and how they lie beside each other.
void RegionLowering::count_loads(schedule::Facts& f) const {
  const bool one_row = std::all_of(groups_.begin(), groups_.end(), [](const Group& g) { return g.reduced; });
  const auto along = [&](const Index& index, bool reduced) {
    return std::any_of(groups_.begin(), groups_.end(),
                       [&](const Group& g) { return g.reduced == reduced && walks(index, g); });
  };
  int partly = 0;
  for (const Entry& e : p_.entries) {
    f.fixed += e.kind == Entry::Kind::Load && !walks(e.index, groups_.back());
    if (e.kind != Entry::Kind::Load || !walks(e.index, groups_.back())) continue;
    const std::int64_t size = size_of(g_[e.node].dtype);
    ++f.loads;
    f.row_loads += (one_row || along(e.index, false)) && !passes_often(e);
    const int bytes = along(e.index, true) ? static_cast<int>(size) : 0;
    if (is_held(e)) f.held_bytes += bytes;
    if (e.predicates < 0)
      f.loaded_bytes += bytes;
    else
      partly = std::max(partly, bytes);  // of the parts of a join a point has one
    f.rows_apart |= !rows_adjoin(e.index, groups_) && (!target_.gpu || !passes_often(e));
    f.strided |= std::abs(e.index.coef(groups_.back().last)) != 1;
    if (p_.space.jumps(e.index)) {
      f.jumps_along = std::min(f.jumps ? f.jumps_along : last_group() + 1, first_jump(p_, groups_, e.index));
      f.jumps = true;
      continue;
    }
    f.near =
        std::max(f.near, near_from(e.index, size, target_.vector_bytes / widest_bytes_, groups_, f.dense));
  }
  f.loaded_bytes += partly;
  f.near = std::min(f.near, last_group());
}

void RegionLowering::choose() {
  if (reads_both_ways()) go_both_ways();
  std::vector<schedule::Facts::Axis> axes;
  for (const Group& g : groups_) axes.push_back({g.extent, g.reduced, g.level});
  const schedule::Facts f = facts(axes);
  auto answer = schedule::schedule(f, target_);
  KILN_CHECK_THAT(std::holds_alternative<schedule::Schedule>(answer), std::get<std::string>(answer));
  s_ = std::get<schedule::Schedule>(answer);
  if (const schedule::ScheduleHook hook = schedule::schedule_hook()) [[unlikely]]
    hook(f, s_);
  const bool untiled = variants_ && std::ranges::count(*variants_, FusionVariant::Untiled) > 0;
  if (!untiled) pairs_ = PairsLowering(*this).find();
  if (pairs_) {  // by the main loop's tiles, which are no schedule's
    s_ = {.form = Form::Nest};
    if (variants_) out_.alternatives = {FusionVariant::Untiled};
  } else if (variants_) {
    out_.alternatives = schedule::alternatives(f, target_, s_, *variants_);
    for (std::span<const FusionVariant> v = *variants_; !v.empty(); v = v.first(v.size() - 1))
      if (const auto other = schedule::varied(v, f, target_, s_)) {
        s_ = *other;
        break;
      }
  }
  if (!target_.gpu && s_.form == Form::Flat && makes_indices(g_, p_))
    s_.block = std::min(s_.block, kCountedBlock);
  if (s_.form != Form::Rows) s_.batch = 0;
  out_.most_blocks = target_.gpu ? schedule::rows_under_way(f, target_, s_) : 0;
}

/// Primitives of what is made of the results of a row. The logarithm of a logsumexp is one of them.
float RegionLowering::row_prims() {
  float cost = 0;
  for (EntryId id = 0; id < p_.entries.size(); ++id) {
    const Entry& e = p_.entries[id];
    if (e.kind == Entry::Kind::Op && e.phase > 0 && !varies(id)) cost += e.cost;
  }
  const float log = target_.cost_of(static_cast<int>(Op::log));
  for (const Reduction& r : reductions_)
    if (ir::info(op_of(r)).fold == ir::Fold::LogAddExp) cost += log;
  return cost;
}

/// Registers of a GPU that a reduction of one element takes: sums of floats keep what rounding took from
/// them.
int RegionLowering::registers_of(const Reduction& r) const {
  const ir::Fold fold = ir::info(op_of(r)).fold;
  const GraphNode& n = g_[p_.entries[r.entry].node];
  const DType t = compute_type(widens(g_, n) ? g_[n.in[0]].dtype : n.dtype);
  const bool two =
      has_position(op_of(r)) || fold == ir::Fold::LogAddExp || (fold == ir::Fold::Sum && t == DType::Float32);
  return (two ? 2 : 1) * std::max(1, static_cast<int>(size_of(t)) / 4);
}

/// Whether an index walks all groups as one.
bool RegionLowering::adjoins(const Index& index) const {
  std::int64_t step = 1;
  for (int g = last_group(); g >= 0; --g) {
    const Group& group = groups_[static_cast<std::size_t>(g)];
    if (index.coef(group.last) != step) return false;
    step *= group.extent;
  }
  return true;
}

/// The phase in which an output is stored: that of its value. A row that a GPU's registers have is written at
/// the end: first all reads, then all writes.
int RegionLowering::stored_in(const Pulled::Output& o) const {
  const Entry& e = p_.entries[o.entry];
  const EntryId source = e.kind == Entry::Kind::Op && g_[e.node].op == Op::cast ? e.in[0] : o.entry;
  return target_.gpu && !o.row && scratch_[source] >= 0 ? phases_ : e.phase;
}

/// Which values only half types will hold, whatever is made of them on the way: an approximation is good
/// enough.
void RegionLowering::find_rough() {
  const std::vector<Entry>& es = p_.entries;
  rough_.assign(es.size(), !target_.strict);
  for (const auto& o : p_.outputs)
    if (!is_half(g_[o.node].dtype)) rough_[o.entry] = false;
  for (auto id = static_cast<EntryId>(es.size()); id-- > 0;) {
    const Entry& e = es[id];
    const GraphNode& n = g_[e.node];
    const bool rounds = e.kind == Entry::Kind::Op && n.op == Op::cast && is_half(n.dtype);
    const bool passes = e.kind == Entry::Kind::Op
                            ? n.op == Op::cast ? is_float(n.dtype) : ir::has(n.op, ir::SMOOTH)
                        : e.kind == Entry::Kind::Reduce ? !has_position(n.op)
                                                        : e.kind == Entry::Kind::Pad;
    const auto demand = [&](EntryId in) { rough_[in] = false; };
    if (!rounds && !(passes && rough_[id])) p_.each_operand(e, demand);
    if (!p_.space.has_values()) continue;
    p_.space.each_value(e.index, demand);
    for (std::int32_t l = e.predicates; l != e.predicates_end; l = p_.links[static_cast<std::size_t>(l)].next)
      p_.space.each_value(p_.links[static_cast<std::size_t>(l)].predicate.t, demand);
  }
}

/// Whether a value differs inside a row (it reaches a load or coordinate over a reduced axis). All are found
/// at once: operands come first, and may be shared by many.
bool RegionLowering::varies(EntryId id) {
  for (std::size_t at = varies_.size(); at < p_.entries.size(); ++at) {
    const Entry& e = p_.entries[at];
    bool differs = varies_by_itself(e);
    if (e.kind == Entry::Kind::Op)
      for (EntryId in : e.in) differs = differs || (in != kNoEntry && varies_[in]);
    varies_.push_back(differs);
  }
  return varies_[id];
}

bool RegionLowering::varies(const Index& index) const {
  for (const Group& g : groups_) {
    if (g.reduced && index.coef(g.last) != 0) return true;
    for (const Group::Piece& p : g.pieces)
      if (index.coef(p.last) != 0) return true;
  }
  for (int t = 0; t < index.n; ++t)
    if (const AtomId a = index.terms[t].atom;
        a >= p_.space.axis_count() && p_.space.atom(a).kind != Atom::Kind::Position)
      return true;
  return false;
}

bool RegionLowering::varies_by_itself(const Entry& e) const {
  switch (e.kind) {
    case Entry::Kind::Scalar:
    case Entry::Kind::Reduce:
    case Entry::Kind::Op: return false;
    case Entry::Kind::Load:
    case Entry::Kind::Iota:
      if (varies(e.index)) return true;
      for (std::int32_t l = e.predicates; l != e.predicates_end;
           l = p_.links[static_cast<std::size_t>(l)].next)
        if (varies(p_.links[static_cast<std::size_t>(l)].predicate.t)) return true;
      return false;
    case Entry::Kind::Scan:
    case Entry::Kind::Product:
    case Entry::Kind::LoopState:
    case Entry::Kind::LoopResult:
    case Entry::Kind::Pad: return true;
  }
  return false;
}

}  // namespace kiln::lower
