// Reductions of operands that are contiguous along different axes, as of x * transpose(y): a GPU's block has
// tiles of both axes. An operand that is contiguous along the tile's rows comes through shared memory,
// written with lanes along them; all are read with lanes along the columns. The rows are reduced. Where the
// columns are kept, a grid item is one tile, whose columns' partial results the finish section combines;
// where they are reduced, too, a grid item adds up some tiles one after the other.
//
// Invariant: a tile's rows and columns lie inside one point of all other axes.
#include "lower/region_lowering.h"

#include <algorithm>

namespace kiln::lower {

/// Whether the tiles of a schedule are of a reduction.
bool RegionLowering::reduces_tiles() const {
  return target_.gpu && s_.run > 0 && (s_.form == Form::Split || s_.form == Form::SplitColumns);
}

/// Whether the order in which elements are combined is nobody's business, and a tile's rows may be these
/// groups.
bool RegionLowering::may_reduce_tiles() const {
  using ir::Fold;
  const auto plain = [&](const Reduction& r) {
    const Fold fold = ir::info(op_of(r)).fold;
    return fold == Fold::Sum || fold == Fold::Prod || fold == Fold::Max || fold == Fold::Min;
  };
  return target_.gpu && !target_.strict && phases_ == 1 && scans_.empty() && p_.loops.empty() && !p_.nest &&
         p_.places.size() <= 2 && std::ranges::all_of(reductions_, plain) &&
         std::ranges::none_of(p_.outputs, [](const Pulled::Output& o) { return !o.row; }) &&
         std::ranges::all_of(tile_rows_, [&](int g) { return groups_[static_cast<std::size_t>(g)].reduced; });
}

/// The reduced groups that are neither a tile's rows nor its columns.
std::vector<int> RegionLowering::groups_around_tiles() const {
  std::vector<int> list = reduced_groups();
  std::erase_if(list, [&](int g) { return g == last_group() || std::ranges::count(tile_rows_, g) > 0; });
  return list;
}

/// Enters a tile: its rows, and what is left of its number, which counts the rows' blocks first.
std::pair<Range, E> RegionLowering::enter_tile_rows(E number) {
  const std::int64_t rows = product(tile_rows_);
  const auto [rest, run] = divide_with_rest(number, size(kRuns, ceil_div(rows, s_.run)));
  const E whole = tile_rows_.size() == 1 ? extent(tile_rows_.front()) : size(kTileRows, rows);
  return {block_range(run, konst(s_.run), whole), rest};
}

/// Tiles, or of kept columns those with the same columns.
std::int64_t RegionLowering::count_tiles() const {
  const std::int64_t rows = product(groups_around_tiles()) * ceil_div(product(tile_rows_), s_.run);
  return s_.form == Form::Split ? rows * blocks_of(last_group()) : rows;
}

/// A tile of kept columns: its operands to shared memory, then each column's partial results.
void RegionLowering::reduce_tile(Body& body, E group, E chunk) {
  const std::vector<int> columns{last_group()};
  const E length = konst(s_.block);
  const Range across = enter_columns(group, length).first;
  const auto [rows, rest] = enter_tile_rows(chunk);
  decompose(rest, groups_around_tiles());
  stage_tile(body, rows, across, columns);
  body.push_back(lane_loop(across, columns, [&, r = rows](Body& into) {
    phase_loops(into, tile_rows_, false, r);
    store_partials(into, chunk);
  }));
  staged_.clear();
}

/// Some tiles of which all is reduced, one after the other, and their partial result.
void RegionLowering::reduce_tiles(Body& body, E chunk) {
  const std::vector<int> columns{last_group()};
  const std::int64_t blocks = blocks_of(last_group());
  const Range tiles = block_range(chunk, size(kChunk, s_.chunk), size(kPoints, count_tiles()));
  std::vector<LoopDecl> nest(1);
  nest.front().var = new_var();
  nest.front().extent = tiles.count.id;
  begin_reductions(nest, 0, false);
  Body& tile = nest.front().body;
  const auto [rows, rest] = enter_tile_rows(tiles.first + var(nest.front().var));
  const E block = block_of(rest, groups_around_tiles(), blocks);
  const Range across = block_range(block, konst(s_.block), last_group());
  stage_tile(tile, rows, across, columns);
  tile.push_back(loop_over_tile(rows, across, columns));
  body.push_back(loop(std::move(nest.front())));
  staged_.clear();
  store_partials(body, chunk);
}

}  // namespace kiln::lower
