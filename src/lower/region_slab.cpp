// Slabs: reductions along different axes of the same values, and maps of both, as in (x - max over a) / (sum
// over b). A grid item is a kept point, with all values along the other axes: a slab. Sweeps go over it one
// after the other, each along the axes of one place, with the axes that are reduced there inside; what a
// sweep finds is kept in scratch memory, one value for each point of its place, where later sweeps read it;
// on a CPU so is what a sweep stores for each element, if that takes long and is reduced later. What they
// read again is in the caches then. A GPU's block has the slab in shared memory, where the first sweep finds
// it; its threads share the points of a place, and where these are few, the elements of each.
//
// Invariant: between two sweeps values live in memory only; the phase says which sweeps have run.
#include "lower/region_lowering.h"
#include "math/expand.h"

#include <algorithm>
#include <bit>

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
  E at = s_.slabs > 0 ? place_among(kept_groups()) - bunch_first_ : E{};
  for (const int g : groups_of(place, true)) {
    const E coordinate = axis_[static_cast<std::size_t>(g)];
    at = at ? at * extent(g) + coordinate : coordinate;
  }
  return at ? at : konst(0);
}

/// Parts of a block that share the elements of so many points. Few sizes: each is a kernel of its own.
int RegionLowering::parts_for(std::int64_t points) const {
  for (const int parts : {64, 32, 16, 8, 4, 2})
    if (points * parts <= s_.threads.team) return parts;
  return 1;
}

/// The same where threads share a block's slab: its points go to them as one, or where that would take a
/// division for each, row by row.
void RegionLowering::shared_sweep(Body& into, int place, const Fill& fill) {
  std::vector<int> order = groups_of(place, true);
  if (s_.slabs > 0) {  // the points of several slabs, as one
    const std::vector<int> kept = kept_groups();
    const E points = order.empty() ? konst(1) : whole_of(order),
            here = kernel::min(size(kRuns, product(kept)) - bunch_first_, size(kBlock, s_.slabs));
    const int wide = std::min(s_.run_lanes, vector_elements());
    if (place == 0 && groups_.back().extent % wide == 0) s_.lanes = wide;
    if (place > 0) s_.rows = parts_for(s_.slabs * product(order));
    s_.steps = s_.rows > 1 ? 1 : 0;
    order.insert(order.begin(), kept.begin(), kept.end());
    into.push_back(lane_loop({bunch_first_ * points, here * points}, order, [&](Body& body) {
      if (place == 0) bunch_at_ = lane_;
      fill(body);
    }));
    bunch_at_ = position_ = {};
    s_.rows = s_.lanes = 1;
    s_.steps = 0;
    return;
  }
  if (order.empty()) {
    forget();
    return fill(into);
  }
  if (place > 0) {
    s_.rows = parts_for(product(order));
    s_.steps = s_.rows > 1 ? 1 : 0;
    into.push_back(lane_loop({konst(0), whole_of(order)}, order, fill));
    position_ = {};
    s_.rows = 1;
    s_.steps = 0;
    return;
  }
  const int last = order.back(), wide = std::min(s_.run_lanes, vector_elements()),
            lanes = product({last}) % wide == 0 ? wide : 1;
  order.pop_back();
  std::vector<LoopDecl> nest = open_nest(order, {});
  const Stmt row = lane_loop({konst(0), extent(last)}, {last}, fill);
  k_.loops[row.target].lanes = static_cast<std::uint16_t>(lanes);
  if (nest.empty()) return into.push_back(row);
  nest.back().rows = static_cast<std::uint16_t>(parts_for(ceil_div(product({last}), lanes)));
  nest.back().body.push_back(row);
  into.push_back(loop(fold(std::move(nest))));
}

/// Loops over the points of a place in a slab. The last group on lanes, if it is the last of all.
void RegionLowering::sweep(Body& into, int place, const Fill& fill) {
  if (target_.gpu) return shared_sweep(into, place, fill);
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
  const bool all = groups_of(place, true).empty() && s_.slabs == 0,
             vector = target_.gpu ? all : inside.back() == last_group();
  s_.together = target_.gpu && all;
  sweep(into, place, [&](Body& body) {
    phase_loops(body, inside, vector);
    forget();
    if (all) return;  // the accumulators themselves
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
      if (now(o)) {
        store_output(body, o);
        if (const std::int32_t kept = scratch_[o.entry]; kept >= 0 && place == 0)
          body.push_back(store(static_cast<std::uint32_t>(kept), row_position(0), build(o.entry)));
      }
  });
}

/// Room for so many elements in shared memory. Few sizes: each is a kernel of its own.
static std::int64_t room_for(std::int64_t elements) {
  return std::max<std::int64_t>(
      64, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(elements))));
}

/// Copies what a slab has of its own to shared memory, as much as there is room for.
void RegionLowering::stage_slab(Body& into, const Range& slab) {
  std::vector<std::int32_t> staged(p_.entries.size(), -1);
  std::int64_t left = s_.run;
  const std::int64_t points = product(reduced_groups()) * std::max<std::int64_t>(1, s_.slabs);
  const Stmt filled = copy_loop(slab, [&](Body& body) {
    for (EntryId id = 0; id < p_.entries.size(); ++id) {
      if (!bunched(p_.entries[id])) continue;
      const DType type = g_[p_.entries[id].node].dtype;
      const std::int64_t elements = room_for(points), bytes = elements * size_of(type);
      if (bytes > left) continue;
      left -= bytes;
      const std::uint32_t tile = bunch_tile(type, elements);
      staged[id] = static_cast<std::int32_t>(tile);
      body.push_back(store(tile, bunch_index(type), build(id)));
    }
  });
  if (!k_.loops[filled.target].body.empty()) into.push_back(filled);
  staged_ = std::move(staged);
}

void RegionLowering::build_slab() {
  const auto places = static_cast<int>(p_.places.size());
  if (target_.gpu) bounded_.resize(k_.accs.size());
  for (Reduction& r : reductions_) {
    if (target_.gpu) {  // threads that add few elements each
      const std::int64_t points = product(groups_of(r.place, true)) * std::max<std::int64_t>(1, s_.slabs),
                         parts = points == 1 ? s_.threads.team : parts_for(points);
      bounded_[r.acc] = ceil_div(product(groups_of(r.place, false)), parts) <= kAddedInOrder;
    }
    if (groups_of(r.place, true).empty() && s_.slabs == 0) continue;
    const GraphNode& n = g_[p_.entries[r.entry].node];
    const DType type = has_position(n.op) ? DType::Int64 : compute_type(n.dtype);
    const std::int64_t results = product(groups_of(r.place, true)) * std::max<std::int64_t>(1, s_.slabs);
    r.partial[0] = scratch_buffer(type, ceil_div(results * size_of(type), 64) * 64);
    if (target_.gpu) k_.buffers[r.partial[0]].shared = static_cast<std::uint32_t>(room_for(results));
  }
  keep_outputs();
  LoopDecl grid = open_grid();
  const std::vector<int> kept = kept_groups();
  if (target_.gpu) {
    const Range slabs = s_.slabs > 0
                            ? block_range(var(grid.var), size(kBlock, s_.slabs), size(kRuns, product(kept)))
                            : Range{var(grid.var), konst(1)};
    const E points = size(kSlab, product(reduced_groups()));
    bunch_first_ = slabs.first;
    stage_slab(grid.body, {slabs.first * points, s_.slabs > 0 ? slabs.count * points : points});
  }
  if (s_.slabs == 0 && !kept.empty()) decompose(var(grid.var), kept);
  for (phase_ = 0; phase_ <= phases_; ++phase_) {
    for (int place = 0; place < places; ++place) store_sweep(grid.body, place, phase_);
    for (int place = 1; place < places; ++place) {
      const auto ends_here = [&](const Reduction& r) { return r.phase == phase_ && r.place == place; };
      if (std::any_of(reductions_.begin(), reductions_.end(), ends_here)) reduce_sweep(grid.body, place);
    }
  }
  close_grid(std::move(grid), ceil_div(product(kept), std::max<std::int64_t>(1, s_.slabs)));
}

}  // namespace kiln::lower
