// Nests: reductions that go on from each other's results along further axes, as in argmin over k of the sum
// over d of (x[i, d] - c[k, d])². A grid item is a kept point, or a block of them on lanes; the loops along
// the axes of one level are inside those of the next, whose accumulators take what an inner loop has found
// when it has ended. So values of the levels between never go to memory. Phases of such a region are its
// levels.
//
// Invariant: one level is on lanes, or the kept axes are; a loop of a level that is not holds the loops of
// the level below and then its own updates.
#include "lower/region_pairs.h"

#include <utility>

namespace kiln::lower {

/// The loops of the level below, inside the current one's.
void RegionLowering::inner_level(Body& body) {
  --phase_;
  phase_loops(body, reduced_groups(phase_), s_.lane_level == phase_);
  ++phase_;
  forget();
}

void RegionLowering::store_level(Body& body, int level) {
  body_ = &body;
  for (const Pulled::Output& o : p_.outputs)
    if (o.level == level) store_output(body, o);
}

void RegionLowering::build_nest() {
  if (pairs_) return PairsLowering(*this).build();
  LoopDecl grid = open_grid();
  E item = var(grid.var);
  std::int64_t rows = 1;
  if (s_.tile > 1) {
    rows = ceil_div(product({s_.tile_axis}), s_.tile);
    const auto [rest, row] = divide_with_rest(item, size(kRuns, rows));
    tile_first_ = row * konst(s_.tile);
    item = rest;
  }
  const auto levels = [&](Body& body) {
    phase_ = static_cast<int>(p_.places.size()) - 2;
    phase_loops(body, reduced_groups(phase_), s_.lane_level == phase_);
    for (int row = 0; row < s_.tile; ++row) {
      enter_row(row, tile_accs_);
      forget();
      store_level(body, phase_ + 1);
    }
  };
  if (s_.lane_level >= 0) {
    const std::vector<int> kept = s_.tile > 1 ? kept_groups({s_.tile_axis}) : kept_groups();
    if (!kept.empty()) decompose(item, kept);
    levels(grid.body);
    return close_grid(std::move(grid), product(kept) * rows);
  }
  const std::vector<int> columns{s_.lane_axis}, outer = kept_groups({s_.lane_axis, s_.tile_axis});
  const std::int64_t blocks = blocks_of(s_.lane_axis);
  const E block = block_of(item, outer, blocks);
  const Range range = block_range(block, size(kBlock, s_.block), s_.lane_axis);
  grid.body.push_back(lane_loop(range, columns, levels));
  close_grid(std::move(grid), product(outer) * blocks * rows);
}

}  // namespace kiln::lower
