// The loops of a kernel: what all forms share, then the forms whose reductions keep their accumulators in
// registers.
//
// Invariant: a loop enters k_.loops when it is complete, after the loops inside it.
#include "lower/region_lowering.h"
#include "lower/widened.h"
#include "math/expand.h"
#include "support/check.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace kiln::lower {
namespace {
constexpr std::int64_t kSharedBytes = 40 << 10;  // of a block's tiles: a block always has 48 KiB
constexpr int kWarp = 32;                        // threads
constexpr int kTwoQuotients = 4;  // lanes, from which two values of a quotient are fewer than one for each
constexpr std::int64_t kScratchBytes = 256 << 10;  // of a CPU thread's: within the second cache

/// Has a GPU's thread make the iterations of a loop, `steps` at most, without a loop.
void write_out(LoopDecl& loop, int steps) {
  loop.steps = static_cast<std::uint16_t>(steps);
  loop.again = true;
}
}  // namespace

/// How an op's accumulator combines values of `type`.
AccDecl RegionLowering::acc_decl(Op op, DType type) {
  switch (ir::info(op).fold) {
    case ir::Fold::Sum: return {Monoid::Sum, type};
    case ir::Fold::Prod: return {Monoid::Prod, type};
    case ir::Fold::Max: return {Monoid::Max, type};
    case ir::Fold::Min: return {Monoid::Min, type};
    case ir::Fold::ArgMax: return {Monoid::ArgMax, type};
    case ir::Fold::ArgMin: return {Monoid::ArgMin, type};
    case ir::Fold::LogAddExp: return {Monoid::Custom, type, log_add_exp(type)};
    case ir::Fold::None: break;
  }
  KILN_CHECK_THAT(false, "no reduction and no scan: ", ir::info(op).name);
  return {};
}

void RegionLowering::declare_accs() {
  for (Reduction& r : reductions_) {
    r.acc = static_cast<std::uint32_t>(k_.accs.size());
    const GraphNode& n = g_[p_.entries[r.entry].node];
    const DType type = compute_type(g_[n.in[0]].dtype);
    k_.accs.push_back(widens(g_, n) ? widened(k_, [&] { return acc_decl(n.op, type); })
                                    : acc_decl(n.op, type));
  }
  tile_accs_.resize(static_cast<std::size_t>(s_.tile) * static_cast<std::size_t>(s_.strips));
  for (std::vector<std::uint32_t>& accs : tile_accs_)
    for (const Reduction& r : reductions_) {
      const bool first = &accs == &tile_accs_.front();
      accs.push_back(first ? r.acc : static_cast<std::uint32_t>(k_.accs.size()));
      if (!first) k_.accs.push_back(AccDecl(k_.accs[r.acc]));
    }
}

// ---- groups ----

/// Those of one level, or of all.
std::vector<int> RegionLowering::reduced_groups(int level) const {
  std::vector<int> list;
  for (int g = 0; g <= last_group(); ++g)
    if (const Group& x = groups_[static_cast<std::size_t>(g)]; x.reduced && (level < 0 || x.level == level))
      list.push_back(g);
  return list;
}

std::vector<int> RegionLowering::kept_groups(std::initializer_list<int> except) const {
  std::vector<int> list;
  for (int g = 0; g <= last_group(); ++g)
    if (!groups_[static_cast<std::size_t>(g)].reduced &&
        std::find(except.begin(), except.end(), g) == except.end())
      list.push_back(g);
  return list;
}

std::int64_t RegionLowering::product(Groups list) const {
  std::int64_t n = 1;
  for (int g : list) n *= groups_[static_cast<std::size_t>(g)].extent;
  return n;
}

/// Grid items along a group that is cut into blocks.
std::int64_t RegionLowering::blocks_of(int group) const {
  return ceil_div(groups_[static_cast<std::size_t>(group)].extent, s_.block);
}

// ---- the grid ----

LoopDecl RegionLowering::open_grid() {
  LoopDecl l;
  l.kind = LoopKind::Grid;
  l.var = new_var();
  l.extent = unset_param(role(kSize, kItems)).id;  // known when the grid is closed
  return l;
}

void RegionLowering::close_grid(LoopDecl grid, std::int64_t items) {
  out_.grid = items;
  out_.params[params_.at(role(kSize, kItems))] = items;
  k_.body.push_back(loop(std::move(grid)));
}

/// Splits a flattened position into the given groups' coordinates (outermost first).
void RegionLowering::decompose(E position, Groups groups) {
  for (std::size_t i = groups.size(); i-- > 1;) {
    const auto [outer, coordinate] = divide_with_rest(position, extent(groups[i]));
    axis_[static_cast<std::size_t>(groups[i])] = coordinate;
    position = outer;
  }
  if (!groups.empty()) axis_[static_cast<std::size_t>(groups.front())] = position;
}

/// A position as coordinates of the outer groups and a block (the result) of one more.
E RegionLowering::block_of(E position, Groups outer, std::int64_t blocks) {
  if (outer.empty()) return position;
  const E n_blocks = size(kBlocks, blocks);
  const E q = divide(position, n_blocks);
  decompose(q, outer);
  return position - q * n_blocks;
}

/// What a block of `length` elements covers of `whole`; the last block may be shorter.
Range RegionLowering::block_range(E block, E length, E whole) {
  const E first = block * length;
  return {first, kernel::min(whole - first, length)};
}

// ---- loops and statements ----

Stmt RegionLowering::loop(LoopDecl decl) {
  k_.loops.push_back(std::move(decl));
  return {Stmt::Kind::Loop, static_cast<std::uint32_t>(k_.loops.size() - 1)};
}

/// A loop on lanes over a range of one group, or of several adjacent ones as one.
Stmt RegionLowering::lane_loop(const Range& range, Groups axes, const Fill& fill) {
  LoopDecl v;
  v.var = new_var();
  put_on_lanes(v);
  v.extent = range.count.id;
  lane_ = var(v.var);
  const E at = range.first + lane_;
  position_ = axes.size() > 1 ? at : E{};
  along_.assign(axes.begin(), axes.end());
  // Where no vector crosses the end of the last group, all that the other groups' coordinates are part of is
  // the vector's. Not where vectors are of all groups as one: operands that are not may begin anywhere.
  const bool whole = target_.gpu && (s_.form != Form::Bunch || bunches_by_runs()) && axes.size() > 1 &&
                     axes.back() == last_group() && s_.lanes > 1 && !s_.ragged &&
                     groups_.back().extent % s_.lanes == 0;
  whole ? place_together(axes, range.first, lane_, true) : decompose(at, axes);
  forget();
  body_ = &v.body;
  fill(v.body);
  return loop(std::move(v));
}

/// Makes a loop run on lanes, and on the threads of a team.
void RegionLowering::put_on_lanes(LoopDecl& loop) const {
  loop.kind = LoopKind::Vector;
  loop.lanes = static_cast<std::uint16_t>(s_.lanes);
  loop.steps = static_cast<std::uint16_t>(s_.steps);
  loop.ragged = s_.ragged;
  if (s_.early) loop.early = early_.id;
  if (s_.windows) loop.rows = static_cast<std::uint16_t>(s_.steps * (s_.lanes > 1 ? s_.lanes : kWarp));
  // Whether quotients along a vector have two values at most: all that divides its place is longer.
  const auto shorter = [&](const Group& g) {
    return (g.pieces.empty() ? g.extent : g.pieces.back().extent) < s_.lanes;
  };
  const auto divides = [&](const Index& i) {
    return std::any_of(i.terms, i.terms + i.n, [&](const Term& t) {
      const Atom::Kind kind = p_.space.atom(t.atom).kind;
      return kind != Atom::Kind::Axis && kind != Atom::Kind::Value && kind != Atom::Kind::Position;
    });
  };
  const auto guard_divides = [&](const PredicateLink& l) {
    return divides(l.predicate.t) || l.predicate.step > 1;  // of what may be below 0, too
  };
  loop.again =
      target_.gpu && s_.lanes >= kTwoQuotients && !s_.windows && s_.tile == 1 &&
      (s_.form == Form::Flat || s_.form == Form::Rows) && scans_.empty() && p_.loops.empty() &&
      !shorter(groups_.back()) &&
      std::ranges::none_of(groups_, [&](const Group& g) { return !g.pieces.empty() && shorter(g); }) &&
      std::ranges::none_of(p_.entries, divides, &Entry::index) &&
      std::ranges::none_of(p_.links, guard_divides);
}

/// A loop over each group, the first over a part of its group if `outermost` says so; none is complete yet.
std::vector<LoopDecl> RegionLowering::open_nest(Groups order, const std::optional<Range>& outermost) {
  std::vector<LoopDecl> nest;
  for (int g : order) {
    const bool cut = nest.empty() && outermost;
    LoopDecl l;
    l.var = new_var();
    const bool folded = fold_rows_ && g == s_.lane_axis - 1;
    l.extent = folded ? fold_rows_.id : cut ? outermost->count.id : extent(g).id;
    place_lane(g, cut && !folded ? outermost->first + var(l.var) : var(l.var));
    nest.push_back(std::move(l));
  }
  return nest;
}

/// Elements that a nest over groups adds up one after the other at most: the first group perhaps in chunks,
/// the last on lanes.
std::int64_t RegionLowering::added_up(Groups order, bool in_chunks, std::int64_t lanes) const {
  std::int64_t elements = 1;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::int64_t whole = groups_[static_cast<std::size_t>(order[i])].extent;
    const std::int64_t most = i == 0 && in_chunks ? std::min(whole, s_.chunk) : whole;
    elements *= i + 1 == order.size() ? ceil_div(most, lanes) : most;
  }
  return elements;
}

/// Cuts a loop of the nest into blocks when more than `limit` elements are added up one after the other,
/// those of the loops inside it counted, of which the innermost is on lanes: each block is to have sums of
/// its own. `always`: also where one block is enough, so that kernels are fewer. Returns the place of the
/// loop over the blocks, or of none.
std::size_t RegionLowering::cut_sums(std::vector<LoopDecl>& nest, Groups order,
                                     const std::optional<Range>& outermost, std::int64_t lanes,
                                     std::int64_t limit, bool always) {
  cut_group_ = -1;
  const bool sums = std::any_of(reductions_.begin(), reductions_.end(),
                                [&](const Reduction& r) { return adds_in_blocks(r); });
  if (!sums || (!always && added_up(order, outermost.has_value(), lanes) <= limit)) return nest.size();
  std::int64_t inside = 1;
  for (std::size_t at = order.size(); at-- > 0;) {
    const bool part = at == 0 && outermost;
    const std::int64_t step = at + 1 == order.size() ? lanes : 1;  // elements that are added at once
    const std::int64_t whole = groups_[static_cast<std::size_t>(order[at])].extent;
    const std::int64_t most = ceil_div(part ? std::min(whole, s_.chunk) : whole, step);
    if (inside * most <= limit && !(always && at == 0)) {
      inside *= most;
      continue;
    }
    const std::int64_t length = at == 0 && lanes == 1 ? shared_length(limit / inside, most) : limit / inside;
    cut_group_ = order[at];
    cut_length_ = std::max<std::int64_t>(1, length) * step;
    const E count = {&k_.pool, nest[at].extent}, block = sum_block(cut_length_);
    LoopDecl blocks;
    blocks.var = new_var();
    blocks.extent = divide(count + block - konst(1), block).id;
    const E first = var(blocks.var) * block;
    const bool from = part && !(fold_rows_ && order[at] == s_.lane_axis - 1);
    place_lane(order[at], (from ? outermost->first + first : first) + var(nest[at].var));
    nest[at].extent = kernel::min(count - first, block).id;
    nest.insert(nest.begin() + static_cast<std::ptrdiff_t>(at), std::move(blocks));
    return at;
  }
  return nest.size();
}

/// Length of the blocks that a loop is cut into: `limit`, or less where the parts of a team that share the
/// blocks would find too few of them.
std::int64_t RegionLowering::shared_length(std::int64_t limit, std::int64_t elements) const {
  return s_.rows > 1 ? std::min(limit, ceil_div(elements, s_.rows)) : limit;
}

/// Completes all loops of a nest but the outermost, which is the result.
LoopDecl RegionLowering::fold(std::vector<LoopDecl> nest) {
  for (std::size_t i = nest.size(); i-- > 1;) nest[i - 1].body.push_back(loop(std::move(nest[i])));
  return std::move(nest.front());
}

/// Completes the loops of a nest from one on, which leave it.
LoopDecl RegionLowering::fold_from(std::vector<LoopDecl>& nest, std::size_t from) {
  const auto first = nest.begin() + static_cast<std::ptrdiff_t>(from);
  std::vector<LoopDecl> inner(std::make_move_iterator(first), std::make_move_iterator(nest.end()));
  nest.erase(first, nest.end());
  return fold(std::move(inner));
}

Stmt RegionLowering::store(std::uint32_t buffer, E index, E value) {
  const DType type = k_.buffers[buffer].dtype;
  return {Stmt::Kind::Store, buffer, index.id,
          (s_.windows ? narrow_choice(value, type, 0) : narrow(value, type)).id};
}

/// Stores the outputs of these phases, which ends the environment.
void RegionLowering::store_outputs(Body& body, bool row, std::initializer_list<int> phases) {
  body_ = &body;
  storing_ = {row, 0};
  for (int phase : phases) storing_.phases |= std::uint64_t{1} << phase;
  for (int phase : phases)
    for (const auto& o : p_.outputs) {
      if (o.row != row || stored_in(o) != phase || (row && row_place_ >= 0 && o.level != sweep_)) continue;
      if (g_[o.node].op == Op::loop_stack)
        build(o.entry);  // its loop stores it
      else
        store_output(body, o);
    }
  storing_ = {};
}

void RegionLowering::store_output(Body& body, const Pulled::Output& o) {
  if (const auto tile = bunch_out_.find(o.node); tile != bunch_out_.end()) {
    body.push_back(store(tile->second, result_index(o), build(o.entry)));
    return;
  }
  auto buffer = out_buffer_.find(o.node);
  if (buffer == out_buffer_.end()) {
    const bool whole = s_.stream && (o.row ? stores_whole_columns(o) : stores_whole_vectors(o.node)),
               ragged = s_.stream && !whole && !o.row && stores_long_rows(o.node);
    buffer = out_buffer_.emplace(o.node, output_buffer(o.node, whole, ragged)).first;
  }
  Index first = o.at;  // where two points share one of the domain, both take the strides of the first
  first.c -= o.behind;
  const std::uint64_t owner = kOutputOwner + o.node;
  E at =
      strip_row_ >= 0 && p_.space.has_values() ? base_and_steps(first, owner, owner) : to_expr(first, owner);
  if (o.behind != 0)
    at = at + (product_ == ir::kNoNode ? param(role(kOffset, owner, kExtent), o.behind) : konst(o.behind));
  body.push_back(store(buffer->second, at, build(o.entry)));
}

// ---- phases ----

/// The innermost statements of one phase: reductions, full outputs, values kept for later phases.
void RegionLowering::phase_body(Body& body) {
  body_ = &body;
  storing_ = {false, std::uint64_t{1} << phase_};  // from the first value on: it may take a loop that stores
  scan_updates(body);
  for (const Reduction& r : reductions_) {
    if (!runs_here(r)) continue;
    Stmt update{Stmt::Kind::Update, r.acc};
    update.value = compared(r, operand(p_.entries[r.entry], 0)).id;
    if (has_position(op_of(r)))
      update.index = fold_rows_ ? fold_turn_.id : to_expr(p_.entries[r.entry].index, r.entry).id;
    body.push_back(update);
  }
  if (row_place_ >= 0) across_rows(body);
  keep_values(body);
  if (s_.form == Form::Nest)
    store_level(body, phase_);
  else if (s_.form != Form::Slab)
    store_full(body);
}

/// Puts the groups at a row-major position among them. Where vectors on lanes never cross the end of the last
/// group, the coordinates of the others are those of their number.
void RegionLowering::place_together(Groups order, E first, E at, bool vector) {
  const E position = first ? first + at : at;
  const std::int64_t last = groups_[static_cast<std::size_t>(order.back())].extent;
  if (!vector || s_.lanes == 1 || last % s_.lanes != 0) return decompose(position, order);
  E number = kernel::index_div(at, konst(s_.lanes));
  if (first) number = kernel::index_div(first, konst(s_.lanes)) + number;
  const E rows = divide(number, size(kLastVectors, last / s_.lanes));
  axis_[static_cast<std::size_t>(order.back())] = position - rows * extent(order.back());
  decompose(rows, std::vector<int>(order.begin(), order.end() - 1));
}

/// One loop over all of these groups, or over a part of them. `in_blocks`: inside a loop over blocks of so
/// many elements, or 0.
std::vector<LoopDecl> RegionLowering::open_together(Groups order, const std::optional<Range>& part,
                                                    bool vector, std::int64_t in_blocks) {
  std::vector<LoopDecl> nest(1);
  LoopDecl& l = nest.front();
  l.var = new_var();
  const E count = part ? part->count : whole_of(order);
  l.extent = count.id;
  E at = var(l.var);
  if (in_blocks > 0) {
    const E block = sum_block(in_blocks);
    LoopDecl blocks;
    blocks.var = new_var();
    blocks.extent = divide(count + block - konst(1), block).id;
    const E first = var(blocks.var) * block;
    l.extent = kernel::min(count - first, block).id;
    at = first + at;
    nest.insert(nest.begin(), std::move(blocks));
  }
  place_together(order, part ? part->first : E{}, at, vector);
  inner_ = at;
  if (!position_) {  // what takes all of them as one needs no coordinates
    position_ = part ? part->first + at : at;
    along_.assign(order.begin(), order.end());
    placed_together_ = true;
  }
  return nest;
}

/// How many elements groups that one loop runs over have.
E RegionLowering::whole_of(Groups order) {
  if (order.size() == 1) return extent(order.front());
  std::uint64_t groups = 0;
  for (const int g : order) groups |= std::uint64_t{1} << g;
  return param(role(kTogether, groups), product(order));
}

/// One phase as nested loops over `order` (groups, outermost first), the last on lanes when `vector`.
void RegionLowering::phase_loops(Body& into, Groups order, bool vector,
                                 const std::optional<Range>& outermost) {
  forget();
  const bool together = s_.together && (order.size() > 1 || reduces_tiles());
  // Few elements in one block, so that kernels are fewer, but for values in parts, which cost more to combine
  // than to keep. Short rows on lanes are never cut.
  const bool columns = !vector && s_.lane_axis == last_group() && (s_.tile == 1 || target_.gpu) &&
                       std::none_of(reductions_.begin(), reductions_.end(), [&](const Reduction& r) {
                         return runs_here(r) && k_.accs[r.acc].monoid == Monoid::Custom;
                       });
  const bool shared = vector && target_.gpu && !target_.strict;  // a team's lanes share the elements
  const std::int64_t lanes = vector ? s_.lanes * std::max<std::int64_t>(1, s_.threads.team) : 1;
  const std::int64_t elements = outermost ? std::min(product(order), s_.chunk) : product(order);
  const bool sums = !shared && s_.written_out == 0 && adds_in_blocks(!vector && bound_sums(elements));
  const std::int64_t in_blocks = vector ? kAddedInOrder * lanes : shared_length(kAddedInOrder, elements);
  std::vector<LoopDecl> nest =
      together ? open_together(order, outermost, vector, sums ? in_blocks : 0) : open_nest(order, outermost);
  const std::int64_t parts = vector && only_relative(order) ? kPartsOfRelative : 1;
  const std::size_t blocks =
      !sums      ? nest.size()
      : together ? 0
                 : cut_sums(nest, order, outermost, lanes, parts * kAddedInOrder, columns || outermost);
  const bool cut = blocks < nest.size();
  if (vector)
    put_on_lanes(nest.back());
  else if (target_.gpu && !together && (s_.tile > 1 || (bunch_words_ > 1 && !cut)))
    nest.back().steps = static_cast<std::uint16_t>(
        s_.tile > 1 ? loads_along(groups_[static_cast<std::size_t>(order.back())]) : bunch_words_);
  if (!vector && s_.written_out > 0) write_out(nest.back(), s_.written_out);
  const std::size_t inner = cut ? blocks + 1 : 0;  // the loops over the elements of a block
  const std::vector<LoopDecl> again(nest.begin() + static_cast<std::ptrdiff_t>(inner), nest.end());
  const std::vector<std::vector<std::uint32_t>> inside = begin_reductions(nest, inner, cut);
  const Body added = cut ? add_blocks(inside) : Body();
  if (!vector) nest.front().rows = static_cast<std::uint16_t>(s_.rows);
  declare_scans(nest.front());
  if (s_.form == Form::Nest && phase_ > 0) inner_level(nest.back().body);
  const bool twice = std::any_of(reductions_.begin(), reductions_.end(),
                                 [&](const Reduction& r) { return runs_here(r) && r.relative.has_value(); });
  if (twice) reading_ = Reading::First;
  for (std::size_t row = 0; row < tile_accs_.size(); ++row) {
    enter_row(static_cast<int>(row), inside);
    phase_body(nest.back().body);
  }
  Body relative;
  if (twice) sum_relative(relative, again, order.back(), parts > 1 && elements > in_blocks ? in_blocks : 0);
  enter_row(0, tile_accs_);
  if (cut) {
    Body& body = nest[blocks].body;
    body.push_back(loop(fold_from(nest, inner)));
    body.insert(body.end(), relative.begin(), relative.end());
    body.insert(body.end(), added.begin(), added.end());
    for (Reduction& r : reductions_)
      if (runs_here(r)) r.relative.reset();
  }
  inner_ = {};
  if (std::exchange(placed_together_, false)) position_ = {};
  LoopDecl phase = fold(std::move(nest));
  if (!phase.accs.empty() || !phase.body.empty()) into.push_back(loop(std::move(phase)));
  if (!cut) into.insert(into.end(), relative.begin(), relative.end());
}

/// All phases one after the other, with the row outputs between them.
void RegionLowering::all_phases(Body& body, bool vector) {
  const std::vector<int> reduced = reduced_groups();
  const auto store_all_rows = [&](int phase) {
    for (std::size_t row = 0; row < tile_accs_.size(); ++row) {
      enter_row(static_cast<int>(row), tile_accs_);
      store_rows(body, {phase});
    }
  };
  store_all_rows(0);
  for (phase_ = 0; phase_ <= phases_; ++phase_) {
    phase_loops(body, reduced, vector);
    forget();
    store_all_rows(phase_ + 1);
  }
}

// ---- forms ----

/// Elements from the vector of memory that a row begins in to the row.
E RegionLowering::begins_early(E row) {
  const E begin = row * whole_of(reduced_groups());
  return begin - kernel::index_div(begin, konst(s_.lanes)) * konst(s_.lanes);
}

/// A grid item is a row: its reduced axes are loops, the innermost on lanes.
void RegionLowering::build_rows() {
  if (s_.batch > 0) return build_row_batches();
  LoopDecl grid = open_grid();
  const std::vector<int> kept = kept_groups({s_.tile_axis});
  const auto [item, tiles] = enter_tile(var(grid.var));
  if (!kept.empty()) decompose(item, kept);
  if (s_.early) early_ = begins_early(item);
  const std::int64_t lanes = std::int64_t{s_.lanes} * std::max<int>(1, s_.threads.team);
  if (s_.tile > 1 && (!target_.gpu || added_up(reduced_groups(), false, lanes) <= schedule::kAddedByTeam))
    bounded_.assign(k_.accs.size(), true);
  all_phases(grid.body, !s_.one_by_one);
  close_grid(std::move(grid), product(kept) * tiles);
}

/// A grid item is a block of columns, which lie on lanes: the reduced axes are serial loops inside.
void RegionLowering::build_columns() {
  if (s_.kept_from >= 0 && s_.tile > 1) return build_tiled_columns();
  LoopDecl grid = open_grid();
  const std::vector<int> columns = column_groups();
  const auto [item, tiles] = enter_tile(var(grid.var));
  auto [range, blocks] = enter_columns(item, size(kBlock, s_.block));
  const bool few = s_.run > 0 && ceil_div(product(reduced_groups()), s_.rows) <= kAddedInOrder;
  if (s_.written_out > 0 || few) bounded_.assign(k_.accs.size(), true);
  if (s_.strips > 1) range.count = kernel::min(range.count, konst(s_.threads.team));
  if (target_.gpu && s_.run > 0) hold_columns(grid.body, range);
  grid.body.push_back(lane_loop(range, columns, [&](Body& body) {
    strip_first_ = axis_[static_cast<std::size_t>(s_.lane_axis)];
    all_phases(body, false);
  }));
  close_grid(std::move(grid), blocks * tiles);
}

/// The elements of a tile that is filled, row by row.
Stmt RegionLowering::loop_over_tile(const Range& rows, const Range& columns, Groups column_groups) {
  LoopDecl row;
  row.var = new_var();
  row.extent = rows.count.id;
  row.rows = static_cast<std::uint16_t>(s_.rows);
  tile_row_ = var(row.var);
  decompose(rows.first + tile_row_, tile_rows_);
  row.body.push_back(lane_loop(columns, column_groups, [&](Body& body) {
    tile_column_ = lane_;
    phase_body(body);
  }));
  return loop(std::move(row));
}

/// Fills the tiles of all loads that cross.
void RegionLowering::stage_tile(Body& body, const Range& rows, const Range& columns, Groups column_groups) {
  std::vector<EntryId> crossing;
  std::int64_t bytes = 0;
  for (EntryId id = 0; id < p_.entries.size(); ++id) {
    if (!crosses(p_.entries[id])) continue;
    bytes += s_.run * tile_pitch(g_[p_.entries[id].node].dtype) * size_of(g_[p_.entries[id].node].dtype);
    if (bytes <= (target_.gpu ? kSharedBytes : kScratchBytes)) crossing.push_back(id);
  }
  LoopDecl column;
  column.var = new_var();
  column.extent = columns.count.id;
  column.rows = static_cast<std::uint16_t>(s_.run_rows);
  tile_column_ = var(column.var);
  decompose(columns.first + tile_column_, column_groups);
  std::vector<std::int32_t> staged(p_.entries.size(), -1);
  const Stmt filled = lane_loop(rows, tile_rows_, [&](Body& into) {
    tile_row_ = lane_;
    for (EntryId id : crossing) {
      const DType type = g_[p_.entries[id].node].dtype;
      const std::int64_t elements = s_.run * tile_pitch(type);
      const std::uint32_t b = scratch_buffer(type, ceil_div(elements * size_of(type), 64) * 64);
      if (target_.gpu) k_.buffers[b].shared = static_cast<std::uint32_t>(elements);
      staged[id] = static_cast<std::int32_t>(b);
      into.push_back(store(b, tile_index(type), build(id)));
    }
  });
  k_.loops[filled.target].lanes = static_cast<std::uint16_t>(s_.run_lanes);
  column.body.push_back(filled);
  body.push_back(loop(std::move(column)));
  staged_ = std::move(staged);
  position_ = {};
}

}  // namespace kiln::lower
