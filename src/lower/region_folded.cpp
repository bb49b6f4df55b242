// Folded: reductions along an axis inside which memory goes on with few elements, as of (n, 3) over axis 0,
// or of (n, 8, 5) over axes 0 and 2. Lanes along these alone would be idle, so several points of the reduced
// axis share a vector with them: a lane is one of those points and one point of the axes inside, and memory
// is read vector after vector. Each lane reduces what it meets; then lanes of one result are combined, and
// later phases find each lane's result in scratch memory. The last points, too few for all lanes, are one
// more turn of fewer lanes.
//
// Invariant: between two loops on lanes values live in scratch memory only, so that the points of a turn and
// the number of lanes are sizes.
#include "kernel/monoid.h"
#include "lower/region_lowering.h"
#include "math/expand.h"

#include <algorithm>
#include <utility>

namespace kiln::lower {

/// The reduced group nearest to the last one, if whatever runs along it in memory runs on inside it as one;
/// -1: there is none.
int RegionLowering::axis_folded() const {
  if (target_.strict || phases_ == 0 || !scans_.empty() || !p_.loops.empty() || p_.nest ||
      p_.places.size() > 2)
    return -1;
  int at = last_group() - 1;
  while (at >= 0 && !groups_[static_cast<std::size_t>(at)].reduced) --at;
  if (at < 0 || (target_.gpu && !columns_in_groups(at + 1))) return -1;
  for (const Reduction& r : reductions_)
    if (has_position(op_of(r)) && !has_turns_as_positions(at)) return -1;
  const auto runs_on = [&](const Index& index) {
    if (index.coef(groups_.back().last) != 1) return false;
    for (auto g = static_cast<std::size_t>(at); g + 1 < groups_.size(); ++g)
      if (index.coef(groups_[g].last) != index.coef(groups_[g + 1].last) * groups_[g + 1].extent)
        return false;
    return true;
  };
  bool any = false;
  for (const Entry& e : p_.entries) {
    if (e.kind != Entry::Kind::Load) continue;
    if (e.predicates >= 0 || p_.space.jumps(e.index)) return -1;
    if (!walks(e.index, groups_[static_cast<std::size_t>(at)])) continue;
    // (A GPU's thread has one of those that are the same along all lanes.)
    const auto inside = std::span(groups_).subspan(static_cast<std::size_t>(at) + 1);
    if (target_.gpu && std::ranges::none_of(inside, [&](const Group& g) { return walks(e.index, g); }))
      continue;
    if (!runs_on(e.index)) return -1;
    any = true;
  }
  for (const auto& o : p_.outputs)
    if (!o.row && !runs_on(o.at)) return -1;
  return any ? at : -1;
}

/// Whether the position of a lane's element follows from the turn that reads it.
bool RegionLowering::has_turns_as_positions(int folded) const {
  const auto reduced = std::ranges::count_if(groups_, [](const Group& g) { return g.reduced; });
  return !target_.gpu && reduced == 1 && !groups_[static_cast<std::size_t>(folded)].from_end;
}

/// Sets a group's coordinate, of the folded one to that of the lane in turn `at`.
void RegionLowering::place_lane(int group, E at) {
  const bool from_end = groups_[static_cast<std::size_t>(group)].from_end;
  axis_[static_cast<std::size_t>(group)] = from_end ? extent(group) - konst(1) - at : at;
  if (!fold_rows_ || group != s_.lane_axis - 1) return;
  const E first = fold_first_ + at * size(kFold, s_.fold);
  axis_[static_cast<std::size_t>(group)] = first + fold_row_;
  fold_turn_ = at;
  position_ = first * size(kFoldRun, product(folded_groups(true, true))) + lane_;
}

/// The groups inside the folded one, those that are kept and those that are reduced.
std::vector<int> RegionLowering::folded_groups(bool kept, bool reduced) const {
  std::vector<int> list;
  for (int g = s_.lane_axis; g <= last_group(); ++g)
    if (groups_[static_cast<std::size_t>(g)].reduced ? reduced : kept) list.push_back(g);
  return list;
}

/// The current point's place among those of some groups.
E RegionLowering::place_among(Groups groups) {
  E at{};
  for (const int g : groups) {
    const E coordinate = axis_[static_cast<std::size_t>(g)];
    at = at ? at * extent(g) + coordinate : coordinate;
  }
  return at ? at : konst(0);
}

/// A loop on lanes over so many of them, each a point of the folded group beside one of those inside.
Stmt RegionLowering::fold_loop(E lanes, const Fill& fill) {
  std::vector<int> along = folded_groups(true, true);
  along.insert(along.begin(), s_.lane_axis - 1);
  return lane_loop({konst(0), lanes}, along, fill);
}

/// Whether the points of the folded group are gone through in blocks. Not those of a logsumexp or of
/// positions: what their blocks come to takes long to combine.
bool RegionLowering::folds_in_blocks() const {
  return s_.fold > 0 && s_.block > 0 &&
         std::none_of(reductions_.begin(), reductions_.end(), [&](const Reduction& r) {
           return ir::info(op_of(r)).fold == ir::Fold::LogAddExp || has_position(op_of(r));
         });
}

/// Reduces, or maps, the points [first, first + count) of the folded group: first all lanes, as often as
/// there are points for all, then the lanes of the points that are left.
void RegionLowering::fold_phase(Body& into, E first, E count, const std::optional<Range>& chunk) {
  const E together = size(kFold, s_.fold), run = size(kFoldRun, product(folded_groups(true, true))),
          all = size(kFoldLanes, s_.fold * product(folded_groups(true, true)));
  std::vector<int> order = reduced_groups();
  std::erase_if(order, [&](int g) { return g >= s_.lane_axis; });
  const auto turns = [&](Body& body, E lanes, E begin, E rows) {
    body.push_back(fold_loop(lanes, [&](Body& inside) {
      fold_row_ = axis_[static_cast<std::size_t>(s_.lane_axis - 1)];
      fold_first_ = begin;
      fold_rows_ = rows;
      phase_loops(inside, order, false, chunk);
      fold_rows_ = {};
      forget();
      for (const Reduction& r : reductions_) {
        if (!runs_here(r)) continue;
        if (has_position(op_of(r))) {
          keep_position(inside, r, begin);
          continue;
        }
        const DType type = k_.buffers[r.of_lane].dtype;
        const E total = kernel::cast(total_of(r), type), before = load(r.of_lane, type, lane_);
        inside.push_back(store(r.of_lane, lane_, kernel::merge(k_, acc_decl(op_of(r), type), total, before)));
      }
    }));
  };
  // Vector after vector along a block of points: what they read lies between each other's elements.
  const auto in_blocks = [&](Body& body, E lanes, E begin, E rows) {
    if (!folds_in_blocks() || order.size() > 1) return turns(body, lanes, begin, rows);
    const E block = size(kBlock, s_.block);
    LoopDecl blocks;
    blocks.var = new_var();
    blocks.extent = divide(rows + block - konst(1), block).id;
    const E done = var(blocks.var) * block;
    turns(blocks.body, lanes, begin + done * together, kernel::min(rows - done, block));
    body.push_back(loop(std::move(blocks)));
  };
  if (s_.fold == 1) return in_blocks(into, all, first, count);
  const E whole = divide(count, together), covered = whole * together;
  LoopDecl part;
  part.var = new_var();
  part.extent = konst(2).id;
  const E rest = var(part.var) == konst(1),
          full = has_positions() ? all * kernel::min(whole, konst(1)) : all;  // no lane without a turn
  in_blocks(part.body, kernel::select(rest, (count - covered) * run, full),
            kernel::select(rest, first + covered, first), kernel::select(rest, konst(1), whole));
  into.push_back(loop(std::move(part)));
}

bool RegionLowering::has_positions() const {
  return std::ranges::any_of(reductions_, [&](const Reduction& r) { return has_position(op_of(r)); });
}

/// The reduced operand where a position says, in a loop on lanes.
E RegionLowering::lane_value_at(const Reduction& r, E position) {
  const E place = std::exchange(position_, E{});
  const E value = value_at_position(r, position);
  position_ = place;
  return value;
}

/// Whether a value at a later position takes the place of one before it: the first of equals stays, and a NaN
/// beats everything but an earlier NaN.
E RegionLowering::beats(const Reduction& r, E x, E before) const {
  const E worse = k_.accs[r.acc].monoid == Monoid::ArgMax ? x <= before : before <= x;
  return is_float(x.type()) ? ~worse & (before == before) : ~worse;
}

/// Stores where the lane's best is, of what it had before and what its turns from the point `begin` on have,
/// which is at later positions.
void RegionLowering::keep_position(Body& body, const Reduction& r, E begin) {
  const E turn = acc_value(r.acc, DType::Int64), before = load(r.of_lane, DType::Int64, lane_),
          found = begin + turn * size(kFold, s_.fold) + fold_row_, old = lane_value_at(r, before);
  const E better = beats(r, lane_value_at(r, found), old);
  body.push_back(store(r.of_lane, lane_, kernel::select(better, found, before)));
}

/// The position of a point from those of its lanes, which do not ascend: the best value, then the first
/// position that has it.
E RegionLowering::position_of_point(Body& body, const Reduction& r) {
  const auto over_lanes = [&](AccDecl decl, const auto& value) {
    LoopDecl points;
    points.var = new_var();
    points.extent = size(kFold, s_.fold).id;
    const E at = var(points.var) * size(kFoldRun, product(folded_groups(true, true))) +
                 place_among(folded_groups(true, true));
    const std::uint32_t acc = new_acc(decl);
    points.accs.push_back(acc);
    points.body.push_back(combine(acc, value(load(r.of_lane, DType::Int64, at))));
    body.push_back(loop(std::move(points)));
    return acc_value(acc, decl.type);
  };
  const AccDecl best = k_.accs[r.acc];
  const E top = over_lanes({best.monoid == Monoid::ArgMax ? Monoid::Max : Monoid::Min, best.type},
                           [&](E at) { return lane_value_at(r, at); });
  return over_lanes({Monoid::Min, DType::Int64}, [&](E at) {
    const E x = kernel::cast(lane_value_at(r, at), best.type);
    const E has = is_float(best.type) ? (x == top) | (x != x) : x == top;
    return kernel::select(has, at, extent(s_.lane_axis - 1));
  });
}

/// What the lanes' values are combined by: sums in Float64, since they may be many.
AccDecl RegionLowering::combined_decl(const Reduction& r) {
  const AccDecl decl = acc_decl(op_of(r), k_.buffers[r.of_lane].dtype);
  return decl.monoid == Monoid::Sum ? total_decl(r, decl) : decl;
}

Stmt RegionLowering::combine(std::uint32_t acc, E value) {
  return {Stmt::Kind::Update, acc, kNoExpr, kernel::cast(value, k_.accs[acc].type).id};
}

/// The results of this phase from those of the lanes.
void RegionLowering::combine_lanes(Body& into) {
  const std::vector<int> kept = folded_groups(true, false), reduced = folded_groups(false, true),
                         inside = folded_groups(true, true);
  const E all = size(kFoldLanes, s_.fold * product(inside));
  const auto lane_type = [&](const Reduction& r) { return k_.buffers[r.of_lane].dtype; };
  const auto value_type = [&](const Reduction& r) {
    return compute_type(g_[p_.entries[r.entry].node].dtype);
  };
  if (kept.empty()) {
    into.push_back(fold_loop(all, [&](Body&) {}));
    LoopDecl& l = k_.loops[into.back().target];
    for (Reduction& r : reductions_) {
      if (!runs_here(r)) continue;
      r.final_acc = new_acc(combined_decl(r));
      l.accs.push_back(r.final_acc);
      l.body.push_back(combine(r.final_acc, load(r.of_lane, lane_type(r), lane_)));
    }
    forget();
    return;
  }
  into.push_back(lane_loop({konst(0), size(kFoldPoints, product(kept))}, kept, [&](Body& body) {
    LoopDecl point;
    point.var = new_var();
    point.extent = size(kFold, s_.fold).id;
    std::vector<LoopDecl> nest = open_nest(reduced, {});
    nest.insert(nest.begin(), std::move(point));
    const E at = var(nest.front().var) * size(kFoldRun, product(inside)) + place_among(inside);
    std::vector<std::pair<const Reduction*, E>> totals;
    for (const Reduction& r : reductions_) {
      if (!runs_here(r)) continue;
      if (has_position(op_of(r))) {
        totals.emplace_back(&r, position_of_point(body, r));
        continue;
      }
      const std::uint32_t acc = new_acc(combined_decl(r));
      nest.front().accs.push_back(acc);
      nest.back().body.push_back(combine(acc, load(r.of_lane, lane_type(r), at)));
      totals.emplace_back(&r, kernel::cast(acc_value(acc, k_.accs[acc].type), value_type(r)));
    }
    if (!nest.back().body.empty()) body.push_back(loop(fold(std::move(nest))));
    for (const auto& [r, total] : totals) body.push_back(store(r->of_point, lane_, total));
  }));
  if (phase_ == phases_ - 1 && !stores_later_) return;
  into.push_back(fold_loop(all, [&](Body& body) {
    const E at = place_among(kept);
    for (const Reduction& r : reductions_)
      if (runs_here(r)) body.push_back(store(r.spread, lane_, load(r.of_point, value_type(r), at)));
  }));
}

/// What a reduction of an earlier phase has found for the lane.
E RegionLowering::folded_value(const Reduction& r) {
  const DType type = compute_type(g_[p_.entries[r.entry].node].dtype);
  if (folded_groups(true, false).empty())
    return kernel::cast(acc_value(r.final_acc, k_.accs[r.final_acc].type), type);
  return load(at_points_ ? r.of_point : r.spread, type, lane_);
}

/// Once per kept point: stores of results, or with `partial` of those of a chunk.
void RegionLowering::at_points(Body& into, const Fill& fill) {
  const std::vector<int> kept = folded_groups(true, false);
  at_points_ = true;
  if (kept.empty()) {
    position_ = {};
    along_.clear();
    forget();
    fill(into);
  } else {
    into.push_back(lane_loop({konst(0), size(kFoldPoints, product(kept))}, kept, fill));
  }
  at_points_ = false;
}

/// Scratch memory for what the lanes find, and for what the kept points among them come to.
void RegionLowering::make_fold_buffers() {
  const std::vector<int> kept = folded_groups(true, false);
  const std::int64_t lanes = s_.fold * product(folded_groups(true, true));
  for (Reduction& r : reductions_) {
    const DType type = compute_type(g_[p_.entries[r.entry].node].dtype);
    const auto buffer = [&](std::int64_t n, DType of) {
      return scratch_buffer(of, ceil_div(n * size_of(of), 64) * 64);
    };
    r.of_lane = buffer(lanes, folds_in_blocks() ? total_decl(r, acc_decl(op_of(r), type)).type : type);
    if (kept.empty()) continue;
    r.of_point = buffer(product(kept), type);
    r.spread = buffer(lanes, type);
  }
  stores_later_ = std::any_of(p_.outputs.begin(), p_.outputs.end(), [&](const Pulled::Output& o) {
    return !o.row && p_.entries[o.entry].phase == phases_;
  });
}

void RegionLowering::build_folded() {
  const std::int64_t lanes = s_.fold * product(folded_groups(true, true));
  const int folded = s_.lane_axis - 1;
  make_fold_buffers();
  LoopDecl grid = open_grid();
  std::vector<int> outer = kept_groups();
  std::erase_if(outer, [&](int g) { return g >= s_.lane_axis; });
  E item = var(grid.var), c{}, first = konst(0), count = extent(folded);
  std::optional<Range> chunk;
  if (s_.chunk) {
    declare_chunks();
    std::tie(item, c) = divide_with_rest(item, n_chunks_);
    const int cut = reduced_groups().front();
    chunk = block_range(c, size(kChunk, s_.chunk), cut);
    if (cut == folded) first = chunk->first, count = chunk->count, chunk.reset();
  }
  if (!outer.empty()) decompose(item, outer);
  const auto row_outputs = [&](int phase) {
    if (s_.chunk) return;  // the finish section's part
    const bool any = std::any_of(p_.outputs.begin(), p_.outputs.end(),
                                 [&](const Pulled::Output& o) { return o.row && stored_in(o) == phase; });
    if (any) at_points(grid.body, [&](Body& into) { store_rows(into, {phase}); });
  };
  row_outputs(0);
  for (phase_ = 0; phase_ <= phases_; ++phase_) {
    const bool reduces =
        std::any_of(reductions_.begin(), reductions_.end(), [&](const Reduction& r) { return runs_here(r); });
    if (!reduces && !(phase_ == phases_ ? stores_later_ : true)) continue;
    if (reduces)
      grid.body.push_back(fold_loop(size(kFoldLanes, lanes), [&](Body& body) {
        for (const Reduction& r : reductions_)
          if (has_position(op_of(r)) && runs_here(r))  // of its first element, or of another if there is none
            body.push_back(
                store(r.of_lane, lane_,
                      first + kernel::min(axis_[static_cast<std::size_t>(folded)], count - konst(1))));
          else if (runs_here(r))
            body.push_back(
                store(r.of_lane, lane_, identity_of(acc_decl(op_of(r), k_.buffers[r.of_lane].dtype))));
      }));
    fold_phase(grid.body, first, count, chunk);
    if (reduces) combine_lanes(grid.body);
    row_outputs(phase_ + 1);
  }
  if (s_.chunk) {
    phase_ = 0;
    at_points(grid.body, [&](Body& into) {
      for (Reduction& r : reductions_) {
        const E total = folded_value(r);
        r.partial[0] = partial_buffer(total.type(), rows_ * chunks_);
        into.push_back(store(r.partial[0], c * n_rows_ + row_index(), total));
      }
    });
  }
  close_grid(std::move(grid), product(outer) * chunks_);
  position_ = {};
  along_.clear();
  if (s_.chunk) build_finish(rows_, {}, konst(1), std::vector<AccDecl>(k_.accs));
}

}  // namespace kiln::lower
