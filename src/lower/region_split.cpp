// Split: a long reduction cut into chunks of its outermost reduced axis. A grid item reduces one chunk of a
// row (or of a block of columns) in registers and stores a partial result per row; the finish section
// combines them.
//
// Invariant: the partial result of chunk c and row r stands at c·n_rows + r; chunks are combined in ascending
// order, so results do not depend on the number of threads.
#include "lower/region_lowering.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>
#include <utility>

namespace kiln::lower {
namespace {

/// The groups around columns along which results lie closer than along the columns.
std::vector<int> groups_beside(const Pulled& p, const std::vector<Group>& groups,
                               const std::vector<int>& outer, int column) {
  const auto step = [&](const Index& at, int g) {
    return std::abs(at.coef(groups[static_cast<std::size_t>(g)].last));
  };
  std::vector<int> beside;
  for (const int g : outer)
    if (std::ranges::any_of(p.outputs, [&](const Pulled::Output& o) {
          return step(o.at, g) > 0 && step(o.at, g) < step(o.at, column);
        }))
      beside.push_back(g);
  return beside;
}

}  // namespace

void RegionLowering::declare_chunks() {
  const std::int64_t whole = s_.together ? product(reduced_groups())
                                         : groups_[static_cast<std::size_t>(reduced_groups().front())].extent,
                     early = s_.early ? s_.lanes - 1 : 0;
  chunks_ = reduces_tiles() ? ceil_div(count_tiles(), s_.form == Form::Split ? s_.chunk : 1)
                            : ceil_div(whole + early, s_.chunk);
  if (target_.gpu && s_.form == Form::Chain) {  // whole blocks of warps
    const std::int64_t warps = s_.threads.block / s_.threads.team;
    chunks_ = ceil_div(chunks_, warps) * warps;
  }
  rows_ = product(kept_groups());
  n_chunks_ = size(kChunks, chunks_);
  n_rows_ = size(kRows, rows_);
}

void RegionLowering::build_split() {
  declare_chunks();
  LoopDecl grid = open_grid();
  const std::vector<int> columns =
      s_.form == Form::SplitColumns ? std::vector<int>{last_group()} : std::vector<int>{};
  const std::int64_t tiles = s_.tile > 1 ? ceil_div(product({s_.tile_axis}), s_.tile) : 1;
  const std::int64_t groups = s_.tile > 1 ? product(kept_groups({s_.tile_axis})) * tiles
                              : columns.empty()
                                  ? rows_
                                  : product(kept_groups({last_group()})) * blocks_of(last_group());
  const std::int64_t lanes = std::int64_t{s_.lanes} * std::max<int>(1, s_.threads.team);
  if (s_.tile > 1 && added_up(reduced_groups(), true, lanes) <= schedule::kAddedByTeam)
    bounded_.assign(k_.accs.size(), true);
  E group, chunk;
  if (target_.gpu)  // blocks that run together read what lies side by side: short runs share their sectors
    std::tie(chunk, group) = divide_with_rest(var(grid.var), size(kGroups, groups));
  else
    std::tie(group, chunk) = divide_with_rest(var(grid.var), n_chunks_);
  if (reduces_tiles() && !columns.empty())
    reduce_tile(grid.body, group, chunk);
  else
    over_group(grid.body, group, columns, konst(s_.block), [&, c = chunk](Body& body) {
      reduces_tiles() ? reduce_tiles(body, c) : reduce_chunk(body, c);
    });
  close_grid(std::move(grid), groups * chunks_);
  build_finish(groups, columns, konst(s_.block), std::vector<AccDecl>(k_.accs));
}

/// The groups whose points are columns, which lie on lanes.
std::vector<int> RegionLowering::column_groups() const {
  if (s_.fold > 0) return folded_groups(true, true);
  if (s_.kept_from < 0) return {s_.lane_axis};
  std::vector<int> list = kept_groups();
  std::erase_if(list, [&](int g) { return g < s_.kept_from; });
  return list;
}

/// A grid item as coordinates of the groups around the columns and a block of these, the result; and how many
/// items there are.
std::pair<Range, std::int64_t> RegionLowering::enter_columns(E item, E block_length) {
  const std::vector<int> columns = column_groups();
  std::vector<int> outer = kept_groups({s_.tile_axis});
  std::erase_if(outer, [&](int g) { return std::find(columns.begin(), columns.end(), g) != columns.end(); });
  const std::int64_t blocks = ceil_div(product(columns), s_.block), items = product(outer) * blocks;
  std::vector<int> beside;
  if (target_.gpu && s_.form == Form::Columns && s_.tile == 1)
    beside = groups_beside(p_, groups_, outer, columns.back());
  if (!beside.empty()) {  // blocks that write into the same lines follow each other
    const auto [q, r] = divide_with_rest(item, size(kRepeats, product(beside)));
    decompose(r, beside);
    std::erase_if(outer, [&](int g) { return std::ranges::find(beside, g) != beside.end(); });
    item = q;
  }
  const E block = block_of(item, outer, blocks),
          whole = columns.size() == 1 ? extent(columns.front()) : size(kRunExtent, product(columns));
  return {block_range(block, block_length, whole), items};
}

/// Fills the body for the rows of a group, whose chunks are combined with each other: one row, or with
/// `columns` (those of the schedule, or none) a block of columns on lanes.
void RegionLowering::over_group(Body& into, E group, Groups columns, E block_length, const Fill& fill) {
  if (columns.empty()) {
    const std::vector<int> kept = kept_groups({s_.tile_axis});
    const E item = enter_tile(group).first;
    if (!kept.empty()) decompose(item, kept);
    return fill(into);
  }
  into.push_back(lane_loop(enter_columns(group, block_length).first, columns, fill));
}

/// Reduces a chunk of the current row, or of each column on lanes, and stores the partial results. A
/// position's partial result is the position alone.
void RegionLowering::reduce_chunk(Body& body, E chunk) {
  const std::vector<int> reduced = reduced_groups();
  const E whole = s_.together ? whole_of(reduced) : extent(reduced.front());
  const Range range = block_range(chunk, size(kChunk, s_.chunk), whole);
  phase_loops(body, reduced, s_.form == Form::Split, range);
  store_partials(body, chunk);
}

void RegionLowering::store_partials(Body& body, E chunk) {
  for (std::size_t i = 0; i < tile_accs_.size(); ++i) {
    enter_row(static_cast<int>(i), tile_accs_);
    const E row = row_index();
    for (Reduction& r : reductions_) {
      if (sweep_ >= 0 && r.place != sweep_) continue;
      const E total = total_of(r);
      if (i == 0) {
        r.partial[0] = partial_buffer(total.type(), rows_ * chunks_);
        out_.buffers[r.partial[0]].id = static_cast<std::uint32_t>(&r - reductions_.data()) + 1;
      }
      body.push_back(store(r.partial[0], chunk * n_rows_ + row, total));
    }
  }
  enter_row(0, tile_accs_);
}

/// The finish section: for every row of a group, the partial results of all chunks combined in registers,
/// then its outputs. `accs` are the accumulators that the partial results come from.
void RegionLowering::build_finish(std::int64_t groups, Groups columns, E block_length,
                                  const std::vector<AccDecl>& accs) {
  in_finish_ = true;
  const schedule::Schedule chosen = s_;
  if (target_.gpu && !columns.empty() && s_.rows > 1) share_columns();
  forget();
  std::fill(axis_.begin(), axis_.end(), E{});
  LoopDecl grid;
  grid.kind = LoopKind::Grid;
  grid.var = new_var();
  grid.extent = size(kGroups, groups).id;
  const auto combine = [&](Body& body) {
    forget();
    const E row = row_index();
    LoopDecl chunk;
    chunk.var = new_var();
    chunk.extent = n_chunks_.id;
    // a team combines its row's chunks
    if (target_.gpu && columns.empty() && !target_.strict) chunk.kind = LoopKind::Vector;
    if (chunk.kind == LoopKind::Serial) chunk.rows = static_cast<std::uint16_t>(s_.rows);
    for (Reduction& r : reductions_) {
      if (sweep_ >= 0 && r.place != sweep_) continue;
      r.final_acc = static_cast<std::uint32_t>(k_.accs.size());
      k_.accs.push_back(total_decl(r, accs[r.acc]));
      chunk.accs.push_back(r.final_acc);
      body_ = &chunk.body;
      chunk.body.push_back(finish_update(r, var(chunk.var) * n_rows_ + row));
    }
    body.push_back(loop(std::move(chunk)));
    store_rows(body, {1, 0});
  };
  over_group(grid.body, var(grid.var), columns, block_length, [&](Body& body) {
    for (std::size_t row = 0; row < tile_accs_.size(); ++row) {
      enter_row(static_cast<int>(row), tile_accs_);
      combine(body);
    }
  });
  out_.finish_grid = groups;
  k_.finish.push_back(loop(std::move(grid)));
  s_ = chosen;
}

/// A GPU's finish section: a block's columns on as many threads as may be side by side. There are few partial
/// results to load, and what is made of the totals, such as an optimizer's step, would take the registers of
/// all lanes.
void RegionLowering::share_columns() {
  constexpr int kMostAcross = 32;
  const int team = s_.threads.team, columns = team / s_.rows * s_.lanes;
  while (s_.lanes > 1 && columns / s_.lanes * 2 <= kMostAcross) s_.lanes /= 2;
  s_.rows = team / (columns / s_.lanes);
}

/// Combines the partial result at `at`.
Stmt RegionLowering::finish_update(const Reduction& r, E at) {
  Stmt s{Stmt::Kind::Update, r.final_acc};
  const E partial = load(r.partial[0], k_.buffers[r.partial[0]].dtype, at);
  s.value = partial.id;
  if (r.partial[1]) {
    s.index = kernel::cast(load(r.partial[1], k_.buffers[r.partial[1]].dtype, at), DType::Int64).id;
  } else if (has_position(op_of(r))) {  // a position alone: its value is read again from the reduced operand
    s.index = partial.id;
    s.value = value_at_position(r, partial).id;
  } else {
    s.value = kernel::cast(partial, k_.accs[r.final_acc].type).id;
  }
  return s;
}

/// The reduced operand at a row-major position among the reduced axes.
E RegionLowering::value_at_position(const Reduction& r, E position) {
  const std::vector<E> saved = axis_;
  decompose(position, reduced_groups());
  forget();
  const E v = operand(p_.entries[r.entry], 0);
  forget();
  axis_ = saved;
  return v;
}

}  // namespace kiln::lower
