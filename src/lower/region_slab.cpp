// Slabs: reductions along different axes of the same values, and maps of both, as in (x - max over a) / (sum
// over b). A grid item is a kept point, with all values along the other axes: a slab. Sweeps go over it one
// after the other, each along the axes of one place, with the axes that are reduced there inside; what a
// sweep finds is kept in scratch memory, one value for each point of its place, where later sweeps read it.
// What they read again is in the caches then.
//
// Invariant: between two sweeps values live in memory only; the phase says which sweeps have run.
#include "lower/region_lowering.h"
#include "math/expand.h"

#include <algorithm>

namespace kiln::lower {

/// The groups of a slab that a place has, or that it has not.
std::vector<int> RegionLowering::groups_of(int place, bool inside) const {
  std::vector<int> list;
  for (const int g : reduced_groups())
    if (((groups_[static_cast<std::size_t>(g)].places >> place & 1) != 0) == inside) list.push_back(g);
  return list;
}

/// Where the current point of a place has its value.
E RegionLowering::row_position(int place) {
  E at{};
  for (const int g : groups_of(place, true)) {
    const E coordinate = axis_[static_cast<std::size_t>(g)];
    at = at ? at * extent(g) + coordinate : coordinate;
  }
  return at ? at : konst(0);
}

/// Loops over the points of a place in a slab. The last group on lanes, if it is the last of all.
void RegionLowering::sweep(Body& into, int place, const Fill& fill) {
  std::vector<int> order = groups_of(place, true);
  const bool vector = !order.empty() && order.back() == last_group();
  if (vector) order.pop_back();
  std::vector<LoopDecl> nest = open_nest(order, {});
  Body body;
  if (vector) {
    const Range whole{konst(0), extent(last_group())};
    body.push_back(lane_loop(whole, {last_group()}, fill));
  } else {
    forget();
    fill(body);
  }
  if (nest.empty()) {
    into.insert(into.end(), body.begin(), body.end());
    return;
  }
  nest.back().body = std::move(body);
  into.push_back(loop(fold(std::move(nest))));
}

/// The reductions of this phase that end at a place, and their values into scratch memory.
void RegionLowering::reduce_sweep(Body& into, int place) {
  sweep_ = place;
  const std::vector<int> inside = groups_of(place, false);
  sweep(into, place, [&](Body& body) {
    phase_loops(body, inside, inside.back() == last_group());
    forget();
    if (groups_of(place, true).empty()) return;  // the accumulators themselves
    for (const Reduction& r : reductions_) {
      if (!runs_here(r)) continue;
      body.push_back(store(r.partial[0], row_position(place), total_of(r)));
    }
  });
  sweep_ = -1;
}

/// Stores the outputs of a place that this phase has the values for.
void RegionLowering::store_sweep(Body& into, int place, int phase) {
  const auto now = [&](const Pulled::Output& o) {
    return o.level == place && p_.entries[o.entry].phase == phase;
  };
  if (std::none_of(p_.outputs.begin(), p_.outputs.end(), now)) return;
  sweep(into, place, [&](Body& body) {
    body_ = &body;
    for (const Pulled::Output& o : p_.outputs)
      if (now(o)) store_output(body, o);
  });
}

void RegionLowering::build_slab() {
  const auto places = static_cast<int>(p_.places.size());
  for (Reduction& r : reductions_) {
    if (groups_of(r.place, true).empty()) continue;
    const GraphNode& n = g_[p_.entries[r.entry].node];
    const DType type = has_position(n.op) ? DType::Int64 : compute_type(n.dtype);
    r.partial[0] = scratch_buffer(type, ceil_div(product(groups_of(r.place, true)) * size_of(type), 64) * 64);
  }
  LoopDecl grid = open_grid();
  const std::vector<int> kept = kept_groups();
  if (!kept.empty()) decompose(var(grid.var), kept);
  for (phase_ = 0; phase_ <= phases_; ++phase_) {
    for (int place = 0; place < places; ++place) store_sweep(grid.body, place, phase_);
    for (int place = 1; place < places; ++place) {
      const auto ends_here = [&](const Reduction& r) { return r.phase == phase_ && r.place == place; };
      if (std::any_of(reductions_.begin(), reductions_.end(), ends_here)) reduce_sweep(grid.body, place);
    }
  }
  close_grid(std::move(grid), product(kept));
}

}  // namespace kiln::lower
