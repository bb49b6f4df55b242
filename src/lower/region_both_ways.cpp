// Reductions along different axes of values that no block of a GPU holds, none of which depends on another:
// sums of the rows and of the columns of a matrix. A block has columns, which lie on lanes, and goes down a
// chunk of them, as for reductions down columns alone; as it does, each row's values in these columns come
// together across the lanes, and go to memory as a partial result. So the values are read once. The finish
// section combines the chunks of columns, a second kernel (Lowered::then) the partial results of rows.
//
// Terms: columns are what stands at column_place_, which has the last group; rows stand at row_place_, which
// has not.
//
// Invariant: once it is known that a region goes both ways, a group is `reduced` where columns have it not.
#include "lower/region_lowering.h"

#include <algorithm>
#include <bit>

namespace kiln::lower {
namespace {

constexpr std::int64_t kTeamCombines = 16;  // partial results of a row, from which on a team combines them

}  // namespace

/// Whether reductions along different axes share a reading, and none depends on another.
bool RegionLowering::reads_both_ways() const {
  if (!target_.gpu || target_.strict || p_.nest || p_.places.size() != 3 || phases_ != 1 || !scans_.empty() ||
      !p_.loops.empty())
    return false;
  schedule::SlabFacts slab;
  std::int64_t rows[2] = {1, 1};
  int last = -1;
  for (int a = 0; a < p_.domain.rank(); ++a) {
    const bool one = (p_.places[1] >> a & 1) != 0, other = (p_.places[2] >> a & 1) != 0;
    if (p_.domain[a] == 1) continue;
    if (!one && !other) return false;
    last = one && other ? -1 : one ? 1 : 2;
    if (last > 0) slab.points *= p_.domain[a];
    if (last > 0) rows[last - 1] *= p_.domain[a];
  }
  const auto is_row = [&](int place) { return place > 0 && place != last; };
  if (last < 0 ||
      std::ranges::any_of(
          reductions_, [&](const Reduction& r) { return is_row(r.place) && has_position(op_of(r)); }))
    return false;
  if (std::ranges::any_of(
          p_.outputs, [&](const Pulled::Output& o) { return o.level == 0 && p_.entries[o.entry].phase > 0; }))
    return false;
  std::vector<NodeId> read;
  for (const Entry& e : p_.entries)
    if (e.kind == Entry::Kind::Load && g_[e.node].numel >= p_.domain.numel() &&
        std::ranges::find(read, e.node) == read.end()) {
      read.push_back(e.node);
      slab.held += static_cast<std::int64_t>(
          std::bit_ceil(static_cast<std::uint64_t>(slab.points * size_of(g_[e.node].dtype))));
    }
  slab.rows = rows[0] + rows[1];
  slab.reductions = static_cast<int>(reductions_.size());
  return !schedule::holds_slab(slab, target_);
}

/// Goes down columns from now on.
void RegionLowering::go_both_ways() {
  row_place_ = (groups_.back().places >> 1 & 1) != 0 ? 2 : 1;
  for (Group& g : groups_) {
    g.reduced = (g.places >> column_place() & 1) == 0;
    g.level = g.reduced ? 0 : -1;
  }
}

/// The groups that the rows have, or those that are reduced along them, but for the last.
std::vector<int> RegionLowering::row_groups(bool kept) const {
  std::vector<int> list;
  for (int g = 0; g < last_group(); ++g)
    if (((groups_[static_cast<std::size_t>(g)].places >> row_place_ & 1) != 0) == kept) list.push_back(g);
  return list;
}

/// Where the current point of a place has its results.
E RegionLowering::place_index(int place) {
  return to_expr(p_.linear[static_cast<std::size_t>(place)], kRowOwner + static_cast<std::uint64_t>(place));
}

/// How many partial results a row has.
std::int64_t RegionLowering::parts_of_row() const {
  return product(row_groups(false)) * blocks_of(last_group());
}

/// Where a part of the current row is among all partial results: beside the others of its row, where a team
/// combines them.
E RegionLowering::part_index(E part) {
  const E row = place_index(row_place_);
  const std::int64_t parts = parts_of_row();
  if (parts == 1) return row;
  return parts >= kTeamCombines ? row * size(kParts, parts) + part
                                : part * size(kRowsAcross, product(row_groups(true))) + row;
}

/// The result that a reduction of rows has no partial result before: a block has all columns, and memory has
/// what the accumulator has.
const Pulled::Output* RegionLowering::whole_row(const Reduction& r) const {
  const auto is_value = [&](const Pulled::Output& o) {
    return o.entry == r.entry && !o.placed && g_[o.node].dtype == k_.accs[r.acc].type;
  };
  const auto found = std::ranges::find_if(p_.outputs, is_value);
  return parts_of_row() == 1 && found != p_.outputs.end() ? &*found : nullptr;
}

/// Whether the rows have results that are no reduction's own.
bool RegionLowering::totals_behind() const {
  const auto own = [&](const Pulled::Output& o) {
    return std::ranges::any_of(reductions_, [&](const Reduction& r) {
      const Pulled::Output* const whole = r.place == row_place_ ? whole_row(r) : nullptr;
      return whole && whole->node == o.node;
    });
  };
  return std::ranges::any_of(p_.outputs,
                             [&](const Pulled::Output& o) { return o.level == row_place_ && !own(o); });
}

void RegionLowering::make_row_buffers() {
  const bool behind = totals_behind();
  for (Reduction& r : reductions_) {
    if (r.place != row_place_) continue;
    if (!behind) {
      r.partial[0] = output_buffer(whole_row(r)->node, false);
      continue;
    }
    r.partial[0] = partial_buffer(k_.accs[r.acc].type, product(row_groups(true)) * parts_of_row());
    out_.buffers[r.partial[0]].id = static_cast<std::uint32_t>(&r - reductions_.data()) + 1;
  }
}

/// What the lanes have of the current row comes together.
void RegionLowering::across_rows(Body& body) {
  for (const Reduction& r : reductions_) {
    if (r.place != row_place_) continue;
    const E at = part_index(row_part_), value = operand(p_.entries[r.entry], 0);
    body.push_back({Stmt::Kind::Across, r.partial[0], at.id, value.id, r.acc});
  }
}

void RegionLowering::build_both_ways() {
  if (totals_rows_) return build_row_totals();
  make_row_buffers();
  out_.then.resize(totals_behind() ? 1 : 0);
  declare_chunks();
  sweep_ = column_place();
  LoopDecl grid = open_grid();
  const std::vector<int> columns{last_group()}, outer = kept_groups({last_group()}),
                                                reduced = reduced_groups();
  const std::int64_t blocks = blocks_of(last_group()), groups = product(outer) * blocks;
  const auto [chunk, group] = divide_with_rest(var(grid.var), size(kGroups, groups));
  const E block = block_of(group, outer, blocks), length = konst(s_.block);
  E beside{};
  for (const int g : row_groups(false)) {
    const E at = axis_[static_cast<std::size_t>(g)];
    beside = beside ? beside * extent(g) + at : at;
  }
  row_part_ = beside ? beside * size(kBlocks, blocks) + block : block;
  const Range across = block_range(block, length, last_group());
  grid.body.push_back(lane_loop(across, columns, [&, c = chunk](Body& body) {
    const E whole = s_.together ? whole_of(reduced) : extent(reduced.front());
    phase_loops(body, reduced, false, block_range(c, size(kChunk, s_.chunk), whole));
    if (chunks_ > 1) return store_partials(body, c);
    forget();
    store_rows(body, {1, 0});
  }));
  close_grid(std::move(grid), groups * chunks_);
  if (chunks_ > 1) build_finish(groups, columns, length, std::vector<AccDecl>(k_.accs));
}

/// The kernel behind: the partial results of each row, by a team or by a thread, and what is made of them.
void RegionLowering::build_row_totals() {
  constexpr int kThreads = 128;
  make_row_buffers();
  const std::vector<int> rows = row_groups(true);
  const std::int64_t parts = parts_of_row(), n = product(rows);
  const bool team = parts >= kTeamCombines;
  in_finish_ = true;
  sweep_ = row_place_;
  const auto total = [&](Body& body) {
    forget();
    LoopDecl part;
    part.var = new_var();
    part.extent = size(kParts, parts).id;
    if (team) part.kind = LoopKind::Vector;
    for (Reduction& r : reductions_) {
      if (r.place != row_place_) continue;
      r.final_acc = static_cast<std::uint32_t>(k_.accs.size());
      k_.accs.push_back(total_decl(r, AccDecl(k_.accs[r.acc])));
      part.accs.push_back(r.final_acc);
      body_ = &part.body;
      part.body.push_back(finish_update(r, part_index(var(part.var))));
    }
    body.push_back(loop(std::move(part)));
    store_rows(body, {1, 0});
  };
  s_ = {.form = Form::Split, .lane_axis = s_.lane_axis, .block = s_.block, .steps = 1};
  const int threads = !team ? kThreads : parts <= 128 ? 8 : parts <= 2048 ? 32 : 256;
  s_.threads = {static_cast<std::uint16_t>(std::max(threads, kThreads)), static_cast<std::uint16_t>(threads)};
  LoopDecl grid = open_grid();
  if (team) {
    decompose(var(grid.var), rows);
    total(grid.body);
    return close_grid(std::move(grid), n);
  }
  const Range range = block_range(var(grid.var), konst(kThreads), size(kRowsAcross, n));
  grid.body.push_back(lane_loop(range, rows, total));
  close_grid(std::move(grid), ceil_div(n, kThreads));
}

}  // namespace kiln::lower
