// Tiles of results: a team of a GPU, or a thread of columns, has those of several rows, and perhaps of
// several strips of columns, so that it combines what it loads several times.
//
// Invariant: the last tile of an axis makes results of its last point again instead of results behind it.
#include "lower/region_lowering.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace kiln::lower {

/// From here on values are those of a row of the tile of results, or of one of its strips, and the reductions
/// have its accumulators.
void RegionLowering::enter_row(int row, const std::vector<std::vector<std::uint32_t>>& accs) {
  for (std::size_t i = 0; i < reductions_.size(); ++i)
    reductions_[i].acc = accs[static_cast<std::size_t>(row)][i];
  if (s_.tile == 1) return;
  const auto place = [&](int group, E at) {  // the last one several times
    axis_[static_cast<std::size_t>(group)] = kernel::min(at, extent(group) - konst(1));
  };
  place(s_.tile_axis, tile_first_ + konst(row / s_.strips));
  if (s_.strips > 1) {
    const E strip = konst(row % s_.strips);
    place(s_.lane_axis, strip_first_ + (strip_step_ ? strip * strip_step_ : strip * konst(s_.threads.team)));
  }
  forget();
}

/// A grid item without the tile of results that it has, and how many tiles there are.
std::pair<E, std::int64_t> RegionLowering::enter_tile(E item) {
  if (s_.tile == 1) return {item, 1};
  const std::int64_t tiles = ceil_div(product({s_.tile_axis}), s_.tile);
  const auto [rest, tile] = divide_with_rest(item, size(kRuns, tiles));
  tile_first_ = tile * konst(s_.tile);
  return {rest, tiles};
}

/// Few columns, of several rows: those of several tiles of rows share the lanes. By strips, a tile has as
/// many lanes as a strip has columns.
void RegionLowering::build_tiled_columns() {
  LoopDecl grid = open_grid();
  const int column = s_.lane_axis;
  const std::vector<int> outer = kept_groups({column, s_.tile_axis});
  const std::int64_t across = ceil_div(product({column}), s_.strips),
                     points = ceil_div(product({s_.tile_axis}), s_.tile) * across,
                     blocks = ceil_div(points, s_.block);
  const E block = block_of(var(grid.var), outer, blocks);
  const Range range = block_range(block, size(kBlock, s_.block), size(kRunExtent, points));
  LoopDecl v;
  v.var = new_var();
  put_on_lanes(v);
  v.extent = range.count.id;
  lane_ = var(v.var);
  position_ = {};
  if (s_.strips > 1) strip_step_ = size(kTileRows, across);
  const auto [tile, at] = divide_with_rest(range.first + lane_, s_.strips > 1 ? strip_step_ : extent(column));
  strip_first_ = at;
  tile_first_ = tile * konst(s_.tile);
  axis_[static_cast<std::size_t>(column)] = at;
  forget();
  all_phases(v.body, false);
  grid.body.push_back(loop(std::move(v)));
  close_grid(std::move(grid), product(outer) * blocks);
}

}  // namespace kiln::lower
