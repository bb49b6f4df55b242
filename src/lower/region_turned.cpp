// Bunches on a CPU: reductions and scans of short rows, and maps of them, with a row on each lane. The rows
// of a grid item are turned on the way through scratch memory: pieces of 16 bytes of several rows are loaded
// side by side, transposed in registers, and stored with the rows next to each other. So all phases load
// adjacent elements, as often as they like, and combine no lanes. Whole results are turned back in the same
// way. Otherwise lanes along a row of 5 would be idle, and lanes that are rows would gather and scatter
// elements, which takes a cycle or more for each.
//
// A slab is what lies behind one point of the outer kept axes (region_bunch.cpp); a lane has a slab.
//
// The rows of a scan from the end are copied as they lie in memory, and its loop goes along them from their
// end.
//
// Invariant: in scratch memory an element stands at its place in the slab times the pitch, plus its slab's
// number.
#include "lower/region_lowering.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

namespace kiln::lower {
namespace {

/// Calls f on every index of a region's memory, coordinates and conditions.
template <class P, class F>
void each_index(P& p, const F& f) {
  for (auto& e : p.entries) f(e.index);
  for (auto& o : p.outputs) f(o.at);
  for (auto& l : p.links) f(l.predicate.t);
}

/// Numbers the points of some groups from their ends; what is scanned then begins there.
void turn_around(Pulled& p, std::vector<Group>& groups) {
  for (Group& g : groups) {
    if (!std::exchange(g.backwards, false)) continue;
    g.from_end = g.reduced;
    each_index(p, [&](Index& index) {
      for (Term& t : std::span(index.terms, static_cast<std::size_t>(index.n))) {
        if (t.atom >= p.space.axis_count() || (g.axes >> t.atom & 1) == 0) continue;
        index.c += t.coef * (p.space.atom(t.atom).extent - 1);
        t.coef = -t.coef;
      }
    });
  }
}

}  // namespace

void find_backwards(const Pulled& p, std::vector<Group>& groups) {
  std::uint64_t axes = 0;
  for (Group& g : groups) {
    g.backwards = std::ranges::any_of(
        p.outputs, [&](const Pulled::Output& o) { return !o.row && o.at.coef(g.last) < 0; });
    if (g.backwards) axes |= g.axes;
  }
  // What is made of a coordinate by division does not become that of another by a sign.
  bool plain = true;
  each_index(p, [&](const Index& index) {
    for (const Term& t : std::span(index.terms, static_cast<std::size_t>(index.n)))
      plain &= t.atom < p.space.axis_count() || (p.space.atom(t.atom).axes & axes) == 0;
  });
  for (Group& g : groups) g.backwards &= plain;
}

/// The groups of a slab: from the first reduced one on.
std::vector<int> RegionLowering::slab_groups(bool reduced_too) const {
  std::vector<int> list;
  bool inside = false;
  for (int g = 0; g <= last_group(); ++g) {
    const bool reduced = groups_[static_cast<std::size_t>(g)].reduced;
    inside |= reduced;
    if (inside && (reduced_too || !reduced)) list.push_back(g);
  }
  return list;
}

/// Whether a value is one for all elements of a slab, made of what one load each has read.
bool RegionLowering::one_for_a_slab(const Entry& e) const {
  std::uint64_t axes = 0;
  for (const int g : slab_groups()) axes |= groups_[static_cast<std::size_t>(g)].axes;
  const auto walks_slab = [&](const Index& index) {
    return std::any_of(index.terms, index.terms + index.n,
                       [&](const Term& t) { return (p_.space.atom(t.atom).axes & axes) != 0; });
  };
  if (e.kind != Entry::Kind::Load && e.kind != Entry::Kind::Op && e.kind != Entry::Kind::Scalar) return false;
  if (walks_slab(e.index)) return false;
  for (std::int32_t l = e.predicates; l != e.predicates_end; l = p_.links[static_cast<std::size_t>(l)].next)
    if (walks_slab(p_.links[static_cast<std::size_t>(l)].predicate.t)) return false;
  bool one = true;
  p_.each_operand(e, [&](EntryId in) { one = one && one_for_a_slab(p_.entries[in]); });
  return one;
}

/// Whether a load that is not turned reads one element for all slabs, or one for a slab.
bool RegionLowering::read_by_slabs(const Entry& e) const {
  if (one_for_a_slab(e)) return true;
  if (e.predicates >= 0 || p_.space.jumps(e.index)) return false;
  const int first = slab_groups().front();
  return std::none_of(groups_.begin(), groups_.begin() + first,
                      [&](const Group& g) { return walks(e.index, g); });
}

/// Where the element at hand is in scratch memory, by the groups that tell elements of a slab apart.
E RegionLowering::turned_index(Groups inside, DType type) {
  return place_among(inside) * konst(tile_pitch(type)) + lane_;
}

/// Where a result waits until it is copied to memory.
E RegionLowering::result_index(const Pulled::Output& o) {
  const DType type = g_[o.node].dtype;
  return target_.gpu ? bunch_index(type) : turned_index(slab_groups(!o.row), type);
}

/// Copies the operands of these slabs to scratch memory, a slab's elements a pitch apart.
void RegionLowering::turn_operands(Body& into, const Range& slabs) {
  std::vector<int> all(groups_.size());
  std::iota(all.begin(), all.end(), 0);
  const std::int64_t slab = product(slab_groups());
  std::vector<std::int32_t> staged(p_.entries.size(), -1);
  LoopDecl line;
  line.var = new_var();
  line.extent = slabs.count.id;
  line.rows = static_cast<std::uint16_t>(s_.run_rows);
  const E n = size(kSlab, slab);
  const Stmt filled = lane_loop({(slabs.first + var(line.var)) * n, n}, all, [&](Body& body) {
    for (EntryId id = 0; id < p_.entries.size(); ++id) {
      if (!bunched(p_.entries[id])) continue;
      const DType type = g_[p_.entries[id].node].dtype;
      const std::int64_t pitch = tile_pitch(type);
      const std::uint32_t tile = scratch_buffer(type, ceil_div(slab * pitch * size_of(type), 64) * 64);
      staged[id] = static_cast<std::int32_t>(tile);
      body.push_back(store(tile, lane_ * konst(pitch) + var(line.var), build(id)));
    }
  });
  k_.loops[filled.target].lanes = static_cast<std::uint16_t>(s_.run_lanes);
  line.body.push_back(filled);
  into.push_back(loop(std::move(line)));
  staged_ = std::move(staged);
  position_ = {};
}

/// Copies a result of these slabs from scratch memory to where it belongs.
void RegionLowering::turn_results(Body& into, const Range& slabs, const Pulled::Output& o,
                                  std::uint32_t tile) {
  const std::vector<int> inside = slab_groups(!o.row);
  std::vector<int> outer = kept_groups(), along;
  std::erase_if(outer, [&](int g) { return g >= slab_groups().front(); });
  along = outer;
  along.insert(along.end(), inside.begin(), inside.end());
  const DType type = g_[o.node].dtype;
  const E n = size(o.row ? kSlabRows : kSlab, product(inside));
  LoopDecl line;
  line.var = new_var();
  line.extent = n.id;
  line.rows = static_cast<std::uint16_t>(s_.run_rows);
  line.body.push_back(lane_loop(slabs, outer, [&](Body& body) {
    position_ = (slabs.first + lane_) * n + var(line.var);
    along_ = along;
    forget();
    const E value = load(tile, type, var(line.var) * konst(tile_pitch(type)) + lane_);
    body.push_back(store(output_buffer(o.node, false), to_expr(o.at, kOutputOwner + o.node), value));
  }));
  into.push_back(loop(std::move(line)));
  position_ = {};
}

void RegionLowering::build_turned() {
  turn_around(p_, groups_);
  const std::vector<int> inside = slab_groups(), kept = kept_groups(), rows = slab_groups(false);
  std::vector<int> outer = kept;
  std::erase_if(outer, [&](int g) { return g >= inside.front(); });
  LoopDecl grid = open_grid();
  const Range slabs = block_range(var(grid.var), konst(s_.block), size(kRuns, product(outer)));
  turn_operands(grid.body, slabs);
  // Results of rows are written one next to the other where a slab is one row.
  const auto adjoins_in = [&](const Index& index, Groups order) {
    std::int64_t step = 1;
    for (std::size_t i = order.size(); i-- > 0;) {
      const Group& g = groups_[static_cast<std::size_t>(order[i])];
      if (index.coef(g.last) != step) return false;
      step *= g.extent;
    }
    return true;
  };
  for (const auto& o : p_.outputs) {
    if (o.row && (rows.empty() || !adjoins_in(o.at, kept))) continue;
    const DType type = g_[o.node].dtype;
    const std::int64_t elements = product(o.row ? rows : inside) * tile_pitch(type);
    bunch_out_.emplace(o.node, scratch_buffer(type, ceil_div(elements * size_of(type), 64) * 64));
  }
  grid.body.push_back(lane_loop(slabs, outer, [&](Body& body) {
    if (rows.empty()) return all_phases(body, false);
    std::vector<LoopDecl> nest = open_nest(rows, {});
    forget();
    all_phases(nest.back().body, false);
    body.push_back(loop(fold(std::move(nest))));
  }));
  const auto tiles = std::exchange(bunch_out_, {});
  staged_.clear();
  for (const auto& o : p_.outputs)
    if (const auto tile = tiles.find(o.node); tile != tiles.end())
      turn_results(grid.body, slabs, o, tile->second);
  close_grid(std::move(grid), ceil_div(product(outer), s_.block));
}

}  // namespace kiln::lower
