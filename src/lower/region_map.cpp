// Maps: regions without reductions, lanes along the last axis or along the last few as one.
//
// Invariant: every element is computed once; a vector's lanes are adjacent elements of the axes on lanes.
#include "lower/region_lowering.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

namespace kiln::lower {
namespace {

constexpr std::int64_t kSector = 32;      // bytes that memory is read and written by
constexpr std::int64_t kKept = 16 << 20;  // bytes whose sectors the second cache has in any order of blocks

/// Parts of a map's points, each behind the one before, whose blocks read the same sectors of memory: an
/// operand's elements along the last group lie apart, and those of another part between them. 0: there are
/// none, or a GPU's second cache still has the sectors.
std::int64_t parts_between(const plan::Graph& g, const Pulled& p, const std::vector<Group>& groups,
                           const std::vector<int>& together) {
  std::int64_t parts = 1, found = 0;
  for (const int group : together) {
    const Group &other = groups[static_cast<std::size_t>(group)], &last = groups.back();
    parts *= other.extent;
    for (const Entry& e : p.entries) {
      if (e.kind != Entry::Kind::Load || p.space.jumps(e.index)) continue;
      const std::int64_t step = std::abs(e.index.coef(other.last)), along = std::abs(e.index.coef(last.last)),
                         size = size_of(g[e.node].dtype);
      if (step > 0 && step < along && step * size < kSector && g[e.node].numel * size / parts > kKept)
        found = parts;
    }
  }
  return found;
}

}  // namespace

/// Outer groups along which an operand repeats that a GPU's second cache would lose before it is read again:
/// too much passes through it meanwhile.
std::vector<int> RegionLowering::groups_of_repeats(Groups outer) const {
  constexpr std::int64_t kKept = std::int64_t{16} << 20;  // bytes
  std::int64_t an_element = 0;
  for (const Entry& e : p_.entries)
    if (e.kind == Entry::Kind::Load && walks(e.index, groups_.back()))
      an_element += size_of(g_[e.node].dtype);
  for (const auto& o : p_.outputs) an_element += size_of(g_[o.node].dtype);
  std::vector<int> repeats;
  for (const int g : outer) {
    std::int64_t inner = 1;
    for (int i = g + 1; i <= last_group(); ++i) inner *= groups_[static_cast<std::size_t>(i)].extent;
    const auto lost = [&](const Entry& e) {
      return e.kind == Entry::Kind::Load && !p_.space.jumps(e.index) && walks(e.index, groups_.back()) &&
             !walks(e.index, groups_[static_cast<std::size_t>(g)]) &&
             g_[e.node].numel * size_of(g_[e.node].dtype) * 4 > kKept;
    };
    if (inner * an_element > kKept && std::ranges::any_of(p_.entries, lost)) repeats.push_back(g);
  }
  return repeats;
}

/// Whether elements are read at several places along the first of the groups that are on lanes as one, as by
/// a stencil, between which too much passes through a GPU's second cache.
bool RegionLowering::reads_far_apart(Groups together) const {
  constexpr std::int64_t kKept = std::int64_t{16} << 20;  // bytes
  constexpr std::int64_t kMostSteps = 16;  // a cache keeps those of more: one of them is read anew for each
  if (together.size() < 2) return false;
  const Group& first = groups_[static_cast<std::size_t>(together.front())];
  std::map<NodeId, std::pair<std::int64_t, std::int64_t>> spans;  // least and greatest place
  for (const Entry& e : p_.entries) {
    if (e.kind != Entry::Kind::Load || p_.space.jumps(e.index)) continue;
    const std::int64_t stride = std::abs(e.index.coef(first.last)), whole = stride * first.extent;
    if (stride == 0) continue;
    std::int64_t place = e.index.c % whole;  // the other end is near where the axis turns around
    if (2 * std::abs(place) > whole) place -= place > 0 ? whole : -whole;
    const auto [at, is_new] = spans.emplace(e.node, std::pair(place, place));
    at->second = {std::min(at->second.first, place), std::max(at->second.second, place)};
    const std::int64_t apart = at->second.second - at->second.first, size = size_of(g_[e.node].dtype);
    if (apart >= stride && apart <= kMostSteps * stride && std::max(apart, 2 * stride) * size > kKept)
      return true;
  }
  return false;
}

/// The block that an item is, of `items` that go along these groups as one. Where a stencil reads far apart,
/// blocks at one place of each of so many parts of the first group follow each other; the last blocks may be
/// empty.
E RegionLowering::block_in_turn(E item, Groups together, std::int64_t parts, std::int64_t& items) {
  if (!target_.gpu || !reads_far_apart(together)) return item;
  const std::int64_t each = ceil_div(items, parts);
  const auto [q, r] = divide_with_rest(item, size(kRepeats, parts));
  items = parts * each;
  return r * size(kBlocks, each) + q;
}

/// Without reductions: the last axis (or the last few as one) in blocks.
void RegionLowering::build_map() {
  if (s_.tile > 1) return build_strips();
  LoopDecl grid = open_grid();
  std::vector<int> outer, together;
  for (int g = 0; g <= last_group(); ++g) (g < s_.lane_axis ? outer : together).push_back(g);
  if (s_.round > 0) return build_rounds(std::move(grid), outer, together);
  if (s_.inside >= 0) return build_rows_inside(std::move(grid), together);
  const std::int64_t run = product(together);
  const std::int64_t blocks = ceil_div(run, s_.block);
  std::int64_t items = product(outer) * blocks;
  E item = outer.empty() ? block_in_turn(var(grid.var), together, product({together.front()}), items)
                         : var(grid.var);
  if (const std::int64_t parts =
          target_.gpu && outer.empty() && items == blocks ? parts_between(g_, p_, groups_, together) : 0;
      parts > 1) {
    const std::int64_t each = ceil_div(items, parts);
    const auto [q, r] = divide_with_rest(item, size(kRepeats, parts));
    items = parts * each;
    item = r * size(kBlocks, each) + q;
  }
  std::vector<int> repeats = target_.gpu ? groups_of_repeats(outer) : std::vector<int>();
  if (target_.gpu && repeats.empty() && outer.size() == 1 &&
      reads_far_apart({outer.front(), together.front()}))
    repeats = outer;
  if (!repeats.empty()) {  // blocks that read the same elements follow each other
    const auto [q, r] = divide_with_rest(item, size(kRepeats, product(repeats)));
    decompose(r, repeats);
    std::erase_if(outer, [&](int g) { return std::ranges::find(repeats, g) != repeats.end(); });
    item = q;
  }
  const E block = block_of(item, outer, blocks);
  const E run_extent = together.size() == 1 ? extent(last_group()) : size(kRunExtent, run);
  const E first = block * konst(s_.block);
  const Range range{first, kernel::min(run_extent - first, konst(s_.block))};
  grid.body.push_back(lane_loop(range, together, [&](Body& body) { phase_body(body); }));
  if (outer.empty() && items == blocks && partner_ == 0) out_.piece = s_.block;
  close_grid(std::move(grid), items);
}

/// A map whose loops over rows are inside that over the vectors of a row.
void RegionLowering::build_rows_inside(LoopDecl grid, Groups row) {
  std::vector<int> outer, rows;
  for (int g = 0; g < s_.lane_axis; ++g) (g < s_.inside ? outer : rows).push_back(g);
  const std::int64_t blocks = blocks_of(s_.inside);
  const E block = block_of(var(grid.var), outer, blocks);
  const Range front = block_range(block, size(kBlock, s_.block), s_.inside);
  const Range whole{konst(0), row.size() == 1 ? extent(last_group()) : size(kRunExtent, product(row))};
  grid.body.push_back(lane_loop(whole, row, [&](Body& body) {
    std::vector<LoopDecl> nest = open_nest(rows, front);
    forget();
    phase_body(nest.back().body);
    body.push_back(loop(fold(std::move(nest))));
  }));
  close_grid(std::move(grid), product(outer) * blocks);
}

/// A map of short rows: a grid item is a number of rounds, after each of which rows and vectors begin
/// together. The loop over rounds is inside that over the elements of one, so that what an element's place in
/// its round decides is found once. The last round, which may be shorter, is an item of its own.
void RegionLowering::build_rounds(LoopDecl grid, Groups outer, Groups together) {
  const std::vector<int> row(together.begin() + 1, together.end());
  const int front = together.front();
  const std::int64_t period = product(row), rows = s_.round / period;
  const std::int64_t last = ceil_div(groups_[static_cast<std::size_t>(front)].extent, rows) - 1;
  const std::int64_t an_item = s_.block / s_.round, items = ceil_div(last, an_item) + 1;
  const E block = block_of(var(grid.var), outer, items);
  const E last_round = size(kRounds, last), rounds = size(kRoundsHere, an_item);
  const E first = kernel::min(block * rounds, last_round);
  const E round = size(kRound, s_.round), length = rows > 1 ? size(kPeriod, period) : round,
          rows_a_round = rows > 1 ? size(kRoundRows, rows) : konst(1);
  LoopDecl inner;
  inner.var = new_var();
  inner.extent = kernel::max(kernel::min(last_round - first, rounds), konst(1)).id;
  LoopDecl v;
  v.var = new_var();
  put_on_lanes(v);
  v.extent = kernel::min((extent(front) - first * rows_a_round) * length, round).id;
  lane_ = var(v.var);
  const E at = first + var(inner.var);
  // What depends on the row alone is one number where a round is one row.
  const E in_round = rows > 1 ? divide(lane_, length) : konst(0);
  decompose(rows > 1 ? lane_ - in_round * length : lane_, row);
  axis_[static_cast<std::size_t>(front)] = rows > 1 ? at * rows_a_round + in_round : at;
  position_ = at * round + lane_;
  along_.assign(together.begin(), together.end());
  forget();
  body_ = &inner.body;
  phase_body(inner.body);
  v.body.push_back(loop(std::move(inner)));
  grid.body.push_back(loop(std::move(v)));
  close_grid(std::move(grid), product(outer) * items);
}

/// A map with an operand that is contiguous along other axes than the last: a grid item is a tile of both.
/// The operand's comes through scratch memory, which a GPU's threads share: written with lanes along the
/// operand's axes, read with lanes along the output's.
void RegionLowering::build_tiles() {
  LoopDecl grid = open_grid();
  std::vector<int> outer, together;
  for (int g = 0; g <= last_group(); ++g) {
    if (g >= s_.lane_axis)
      together.push_back(g);
    else if (std::find(tile_rows_.begin(), tile_rows_.end(), g) == tile_rows_.end())
      outer.push_back(g);
  }
  const auto extent_of = [&](Groups list, Size role) {
    return list.size() == 1 ? extent(list.front()) : size(role, product(list));
  };
  const auto range_of = [&](E block, std::int64_t length, E whole) -> Range {
    const E first = block * konst(length);
    return {first, kernel::min(whole - first, konst(length))};
  };
  const std::int64_t runs = ceil_div(product(tile_rows_), s_.run),
                     blocks = ceil_div(product(together), s_.block);
  // Where results' rows are no whole sectors of memory, tiles that write parts of one follow each other, so
  // that the second cache joins them.
  const bool parts =
      target_.gpu && blocks > 1 && std::ranges::any_of(p_.outputs, [&](const Pulled::Output& o) {
        const std::int64_t size = size_of(g_[o.node].dtype);
        return product(together) * size % kSector != 0 && g_[o.node].numel * size > kKept;
      });
  const E inner = parts ? size(kBlocks, blocks) : size(kRuns, runs);
  const auto [position, tile] = divide_with_rest(var(grid.var), inner);
  E run = tile, block = tile;
  if (!parts) {
    block = block_of(position, outer, blocks);
  } else if (outer.empty()) {
    run = position;
  } else {
    const auto [rest, at] = divide_with_rest(position, size(kRuns, runs));
    decompose(rest, outer);
    run = at;
  }
  const Range rows = range_of(run, s_.run, extent_of(tile_rows_, kTileRows));
  const Range columns = range_of(block, s_.block, extent_of(together, kRunExtent));
  stage_tile(grid.body, rows, columns, together);
  grid.body.push_back(loop_over_tile(rows, columns, together));
  close_grid(std::move(grid), product(outer) * blocks * runs);
}

}  // namespace kiln::lower
