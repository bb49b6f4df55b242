// Fuser: whether reductions whose values stand at several places share a kernel: nests, slabs, and what goes
// both ways.
#include "plan/fuser.h"

#include <algorithm>
#include <bit>
#include <span>

namespace kiln::plan {

constexpr std::int64_t kLeastAlone = 1024;  // elements of a GPU's slab: a block has several smaller ones

/// Whether another region with as many results reduces an array that this one reduces. merge_siblings() then
/// makes a kernel of both, which reads once: that saves more than few results that are never in memory.
bool Fuser::has_sibling(const Group& a) {
  if (point_readers_.empty())
    for (const Edge& e : edges_)
      if (e.relation == Relation::Same) point_readers_[e.producer].push_back(e.consumer);
  const auto is_sibling = [&](NodeId reader) {
    if (group_of_[reader] < 0) return false;
    const Group& b = group(reader);
    return &a != &b && b.reduces && !b.library && b.points == a.points && b.rows() == a.rows();
  };
  return std::ranges::any_of(a.in_edges, [&](std::uint32_t e) {
    const auto readers = point_readers_.find(edges_[e].producer);
    return g_[edges_[e].producer].numel == a.points && readers != point_readers_.end() &&
           std::ranges::any_of(readers->second, is_sibling);
  });
}

/// Why reductions along further axes do not go on in the kernel whose results they take, or nothing.
Why Fuser::refuse_nest(const Group& a, const Group& b, const Fit& f) {
  if (t_.off.nest) return because(FusionReason::SwitchedOff, "nest");
  const bool simple = !f.dependent && !a.phases && !b.phases && !a.scans && !b.scans && !a.loops && !b.loops;
  const Space& space = f.atoms.space();
  const AtomSet* place = f.levels.place;
  schedule::NestFacts n;
  n.kept = space.points(place[f.levels.n - 1]);
  n.innermost = space.points(place[0]) / space.points(place[1]);
  n.outer = space.points(place[1]) / n.kept;
  for (int l = 0; l + 1 < f.levels.n; ++l)
    if (space.points(place[l]) == space.points(place[l + 1])) return Why::later();
  if (!simple) return FusionReason::SeveralSweeps;
  if (t_.strict) return FusionReason::StrictOrders;
  if (t_.gpu && !t_.off.siblings && !has_any(b, orders_.together) && has_sibling(a)) return Why::later();
  for (int i = space.n; i-- > 0;) {
    if (space.extent[i] == 1) continue;
    n.last = space.extent[i];
    for (int l = 0; l + 1 < f.levels.n; ++l)
      if ((place[l] & ~place[l + 1]) >> i & 1) n.last_level = l;
    break;
  }
  bool above = false;
  int axes = 0;
  for (int i = 0; i < space.n; ++i) {
    if (space.extent[i] == 1) continue;
    ++axes;
    above |= f.levels.n > 2 && ((place[1] & ~place[2]) >> i & 1) != 0;
    n.apart_in_memory |= above && (place[f.levels.n - 1] >> i & 1) != 0;
  }
  n.pairs = axes == 3 && f.levels.n == 3 && n.kept > 1;
  const double cost[2] = {a.cost * static_cast<double>(a.points), b.cost * static_cast<double>(b.points)};
  n.apart[0] = {cost[0], bytes_moved({&a})};
  n.apart[1] = {cost[1], bytes_moved({&b})};
  n.prims = cost[0] + cost[1];
  n.bytes = bytes_moved({&a, &b});
  return has_any(b, orders_.together) || schedule::nest_pays(n, t_) ? Why() : Why::later();
}

/// Points of the last atoms that the same of these places have: every loop over them is one.
static std::int64_t last_run(const Space& space, std::span<const AtomSet> places) {
  std::int64_t run = 1;
  int last = -1;
  for (int i = space.n; i-- > 0;) {
    if (space.extent[i] == 1) continue;
    if (last < 0) last = i;
    if (!std::ranges::all_of(places, [&](AtomSet p) { return (p >> i & 1) == (p >> last & 1); })) break;
    run *= space.extent[i];
  }
  return run;
}

/// Whether all points of an item lie side by side: no atom that items have comes after one that they have
/// not.
static bool lie_together(const Space& space, AtomSet items) {
  bool inside = false;
  for (int i = 0; i < space.n; ++i) {
    if (space.extent[i] == 1) continue;
    const bool kept = (items >> i & 1) != 0;
    if (kept && inside) return false;
    inside |= !kept;
  }
  return true;
}

/// Why reductions along different axes of the same values do not share a kernel, or nothing. `siblings`: none
/// reads what the other makes.
Why Fuser::refuse_slab(const Group& a, const Group& b, const Fit& f, bool siblings) {
  if (t_.off.nest) return because(FusionReason::SwitchedOff, "nest");
  if (a.scans || b.scans || a.loops || b.loops) return Why::later();
  if (t_.strict) return FusionReason::StrictOrders;
  const Space& space = f.atoms.space();
  AtomSet kept = space.all();
  for (int l = 0; l < f.levels.n; ++l) kept &= f.levels.place[l];
  schedule::SlabFacts s;
  s.items = space.points(kept);
  s.points = space.points(space.all()) / std::max<std::int64_t>(1, s.items);
  for (int l = 1; l < f.levels.n; ++l) {
    const std::int64_t row = space.points(f.levels.place[l]) / std::max<std::int64_t>(1, s.items);
    s.rows += row;
    if (row == s.points) return Why::later();
  }
  if (!space.ends_in(space.all() & ~kept)) return Why::later();  // no lanes inside a slab
  s.sweeps = f.levels.n;
  s.run = last_run(space, {f.levels.place, static_cast<std::size_t>(f.levels.n)});
  const double cost[2] = {a.cost * static_cast<double>(a.points), b.cost * static_cast<double>(b.points)};
  s.apart[0] = {cost[0], bytes_moved({&a})};
  s.apart[1] = {cost[1], bytes_moved({&b})};
  s.prims = cost[0] + cost[1];
  s.bytes = bytes_moved({&a, &b});
  const bool far = t_.traffic_ns(s.apart[0].bytes + s.apart[1].bytes) > 2 * t_.launch_ns;
  if (t_.gpu && far && s.points < kLeastAlone && !lie_together(space, kept)) return Why::later();
  if (t_.gpu) {
    s.held = slab_bytes(a, b, s.points, space.points(space.all()));
    s.reductions = a.reductions + b.reductions;
  }
  if (!siblings && schedule::slab_pays(s, t_)) return {};
  return t_.gpu && !schedule::holds_slab(s, t_) && goes_both_ways(a, b, f) ? Why() : Why::later();
}

/// Whether reductions along different axes, of which none depends on another, had better share a reading of
/// values that no block of a GPU holds: some of the rows, whose last elements lie side by side, the others of
/// columns beside each other.
bool Fuser::goes_both_ways(const Group& a, const Group& b, const Fit& f) {
  const Space& space = f.atoms.space();
  const AtomSet *place = f.levels.place, all = space.all();
  if (f.levels.n != 3 || f.dependent || a.phases || b.phases || (place[1] | place[2]) != all) return false;
  int last = space.n - 1;
  while (last > 0 && space.extent[last] == 1) --last;
  const bool first_is_row = (place[1] >> last & 1) == 0;
  const AtomSet row = place[first_is_row ? 1 : 2], column = place[first_is_row ? 2 : 1];
  if ((column >> last & 1) == 0 || (row >> last & 1) != 0) return false;
  const auto no_value = [&](const Group& x, int side) {
    return std::ranges::any_of(x.nodes, [&](NodeId n) {
      return ir::has(g_[n].op, ir::POSITION) && f.atoms.of(side, place_[n]) == row;
    });
  };
  if (no_value(a, 0) || no_value(b, 1)) return false;
  if (a.levels.apart || b.levels.apart) return true;
  schedule::BothWays s;
  s.run = last_run(space, {place, 3});
  s.columns = space.points(column);
  s.reduced = space.points(all) / s.columns;
  s.reductions = a.reductions + b.reductions;
  for (const NodeId n : inputs_of(a, b))
    if (g_[n].numel >= space.points(all)) s.bytes = std::min(s.bytes, size_of(g_[n].dtype));
  const double cost[2] = {a.cost * static_cast<double>(a.points), b.cost * static_cast<double>(b.points)};
  s.apart[0] = {cost[0], bytes_moved({&a})};
  s.apart[1] = {cost[1], bytes_moved({&b})};
  s.together = {cost[0] + cost[1], bytes_moved({&a, &b})};
  return schedule::both_ways_pay(s, t_);
}

/// Bytes that operands of all points of both take in a slab of so many points.
std::int64_t Fuser::slab_bytes(const Group& a, const Group& b, std::int64_t slab, std::int64_t points) const {
  std::int64_t bytes = 0;
  for (const NodeId n : inputs_of(a, b))
    if (g_[n].numel >= points)
      bytes +=
          static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(slab * size_of(g_[n].dtype))));
  return bytes;
}

}  // namespace kiln::plan
