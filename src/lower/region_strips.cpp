// Strips: maps of a GPU whose points read their neighbours along an outer axis, as stencils, pooling windows
// and convolutions by channels do. A thread has the results of a few rows at one place along the axes inside
// that axis, or of a vector there. What rows share (a neighbour, a weight, a guard) is then loaded or found
// once: equal values of the rows are one expression, since steps along the axis are numbers in the kernel and
// not parameters.
//
// Invariant: every point is computed by the same operations as alone. The last rows of an axis may be made
// twice, so strips read nothing that they write.
#include "lower/region_lowering.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace kiln::lower {
namespace {

constexpr std::int64_t kMostSteps = 16;  // along the axis from a point to a neighbour whose steps are numbers
constexpr std::int64_t kMostRows = 8;    // of a thread
constexpr std::int64_t kLeastRun = 8;    // elements inside the axis: threads side by side read those
constexpr double kMostWork = 4000;       // primitives of a thread: compilation takes so long, …
constexpr double kMostShort = 400;       // … for points that load little not worth more
constexpr std::size_t kLeastLoads = 4;   // of a point, …
constexpr std::size_t kLeastApart = 2;   // … or these where rows are no vectors, …
constexpr std::size_t kLeastChosen = 2;  // … or where indices choose places
constexpr int kWideStore = 16;           // bytes: vectors of these are better where indices choose places
constexpr int kChosenBytes = 32;         // of a thread's results there
constexpr double kMostShifted = 6;       // vectors that begin anywhere: more take too many registers
constexpr double kWins = 0.8;            // loads left, of those without strips (but by rounds of a warp), …
constexpr double kShared = 0.9;          // … and of all loads, if each were of one element
constexpr double kWinsOfFew = 0.3;       // … where a point has few, and the first cache some of them
constexpr std::int64_t kNearRows = 1 << 18;  // bytes from a row to the next, of which a thread reads several
constexpr double kOwnPlace = 2;              // loads, where each lane of a vector divides to find its element
constexpr int kWide = 4;                     // bytes of elements that are read as fast one by one
constexpr std::int64_t kMostNumber = 16;     // elements along the last axis that are a number in the kernel
constexpr std::int64_t kMostBetween = 256;

/// An index without one of its terms.
Index without(const Index& index, AtomId atom) {
  Index out = index;
  out.n = 0;
  for (const Term& t : std::span(index.terms, static_cast<std::size_t>(index.n)))
    if (t.atom != atom) out.terms[out.n++] = t;
  return out;
}

/// Of all points, those at which a load is done: part of a join has few.
double share_of_points(const Pulled& p, const Entry& e) {
  double share = 1;
  for (std::int32_t at = e.predicates; at >= 0; at = p.links[static_cast<std::size_t>(at)].next) {
    const Predicate& there = p.links[static_cast<std::size_t>(at)].predicate;
    if (there.t.n != 1 || std::abs(there.t.terms[0].coef) != 1 || there.step != 1) continue;
    const auto all = static_cast<double>(p.space.atom(there.t.terms[0].atom).extent);
    share *= std::min(1.0, static_cast<double>(there.extent) / all);
  }
  return share;
}

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

}  // namespace

/// Whole steps along the strip's axis that an index's constant has, `nearest` or rounded down; 0: more than
/// are numbers.
std::int64_t RegionLowering::strip_steps(const Index& index, int axis, bool nearest) const {
  const std::int64_t step = index.coef(groups_[static_cast<std::size_t>(axis)].last);
  if (step == 0) return 0;
  const std::int64_t steps =
      nearest ? floor_div(2 * index.c + std::abs(step), 2 * step) : floor_div(index.c, step);
  return std::abs(steps) <= kMostSteps ? steps : 0;
}

/// Whether an index is the same at all points along an axis.
bool RegionLowering::is_same_along(const Index& index, int axis) const {
  const Group& along = groups_[static_cast<std::size_t>(axis)];
  const bool jumps = p_.space.jumps(index) && first_jump(p_, groups_, index) <= axis;
  return std::none_of(index.terms, index.terms + index.n, [&](const Term& t) {
    const Atom& atom = p_.space.atom(t.atom);
    return atom.jumps ? jumps : (atom.axes & along.axes) != 0;
  });
}

/// Loads that another load stands for, which has either of two places (turned_load).
std::set<EntryId> RegionLowering::turned_with_others() {
  std::set<EntryId> out;
  for (const Entry& e : p_.entries)
    if (const std::optional<Turned> turned = e.kind == Entry::Kind::Pad ? find_turned(e) : std::nullopt)
      out.insert(std::abs(turned->low.c) <= std::abs(turned->high.c) ? e.in[1] : e.in[0]);
  return out;
}

/// What a load takes of a warp that reads `lanes` adjacent elements a thread by `accesses`: instructions and
/// lines of 128 bytes, by half each.
double RegionLowering::load_cost(const Entry& e, std::int64_t lanes, std::int64_t accesses) const {
  if (!walks(e.index, groups_.back())) return 1;
  const auto words = static_cast<double>(lanes * size_of(g_[e.node].dtype)) / 4;
  return static_cast<double>(accesses) * (1 + std::max(1.0, words)) / 2;
}

/// Loads of a point, where a thread has `rows` of them along an axis.
double RegionLowering::loads_in_strip(int axis, std::int64_t rows, const std::set<EntryId>& turned) const {
  const Group& along = groups_[static_cast<std::size_t>(axis)];
  std::set<std::tuple<EntryId, std::int64_t, std::int64_t>> loads;
  double cost = 0;
  for (EntryId id = 0; id < p_.entries.size(); ++id) {
    const Entry& e = p_.entries[id];
    if (e.kind != Entry::Kind::Load || turned.contains(id)) continue;
    const std::int64_t steps = strip_steps(e.index, axis, true), step = e.index.coef(along.last);
    const bool same = is_same_along(e.index, axis);
    const double share = share_of_points(p_, e);
    const EntryId owner = same || is_same_along(without(e.index, along.last), axis) ? stride_owner(id) : id;
    for (std::int64_t row = 0; row < rows; ++row)
      if (loads.emplace(owner, e.index.c - steps * step, same ? 0 : steps + row).second)
        cost += load_cost(e, 1, 1) * (same ? std::min(1.0, static_cast<double>(rows) * share) : share);
  }
  return cost / static_cast<double>(rows);
}

/// Loads of a point, where a thread has `rows` vectors along an axis: of what lies along all axes as one, and
/// for each lane of what is the same in all rows. Nothing, where there is anything else.
std::optional<double> RegionLowering::loads_in_vectors(int axis, std::int64_t rows, int lanes) const {
  double cost = 0;
  for (const Entry& e : p_.entries) {
    if (e.kind != Entry::Kind::Load) continue;
    const bool flat = e.predicates < 0 && runs_through(e.index);
    if (!flat && (e.predicates >= 0 || !is_same_along(e.index, axis))) return std::nullopt;
    cost += flat ? load_cost(e, lanes, 1) / lanes : 1.0 / static_cast<double>(rows);
  }
  return cost;
}

/// Whether what a strip's vector reads of an operand is an aligned vector.
bool RegionLowering::begins_strip(const Entry& e) const {
  const GraphNode& n = g_[e.node];
  const std::int64_t size = size_of(n.dtype), bytes = std::min<std::int64_t>(16, s_.lanes * size);
  const std::int64_t base = n.op == Op::leaf ? g_.args[static_cast<std::size_t>(n.arg)].alignment : 0;
  if (e.predicates >= 0 || base % bytes != 0 || e.index.c * size % bytes != 0) return false;
  std::int64_t step = 1;
  for (int g = last_group(); g >= 0; --g) {
    const Group& group = groups_[static_cast<std::size_t>(g)];
    const std::int64_t coef = e.index.coef(group.last);
    if (g > s_.tile_axis ? coef != step : coef * size % bytes != 0) return false;
    step *= group.extent;
  }
  return std::all_of(e.index.terms, e.index.terms + e.index.n, [&](const Term& term) {
    return std::ranges::any_of(groups_, [&](const Group& g) { return g.last == term.atom; });
  });
}

/// Whether a vector has elements of several rows, which are shorter than it.
static bool vectors_of_rows(const schedule::Facts& f) {
  return f.window + f.window_rounds == 0 && f.flat_vector > f.axes.back().extent;
}

/// Loads of a point without strips: a vector's count for all of its elements. Where its lanes have places of
/// their own, each asks whether its element is there, or at which of two places, which rows of a strip ask
/// together. A vector that begins anywhere is shifted out of two.
double RegionLowering::loads_alone(const schedule::Facts& f, const std::set<EntryId>& turned) const {
  constexpr double kShifts = 5;  // in loads
  if (f.window > 0) {
    double cost = 0;
    for (EntryId id = 0; id < p_.entries.size(); ++id) {
      const Entry& e = p_.entries[id];
      if (e.kind != Entry::Kind::Load || turned.contains(id)) continue;
      const bool whole = !walks(e.index, groups_.back()) || begins_whole(e, f.window);
      cost += share_of_points(p_, e) * (load_cost(e, f.window, whole ? 1 : 2) + (whole ? 0 : kShifts));
    }
    return cost / f.window;
  }
  const std::int64_t lanes = f.window_rounds > 0 ? 1 : std::max(f.vector, f.flat_vector);
  double cost = 0;
  for (EntryId id = 0; id < p_.entries.size(); ++id) {
    const Entry& e = p_.entries[id];
    if (e.kind != Entry::Kind::Load || turned.contains(id)) continue;
    const bool whole = !walks(e.index, groups_.back()) || (begins_whole(e, lanes) && !lanes_decide(e, lanes));
    const bool shared = f.window_rounds > 0 && !walks(e.index, groups_.back());
    if (vectors_of_rows(f) && !walks(e.index, groups_.back()) &&
        std::ranges::any_of(groups_, [&](const Group& g) { return walks(e.index, g); })) {
      cost += kOwnPlace;
      continue;
    }
    double cost_here =
        load_cost(e, lanes, whole ? 1 : lanes) / static_cast<double>(shared ? f.window_rounds : lanes);
    if (lanes > 1 && e.predicates >= 0) cost_here += whole ? 1 / static_cast<double>(lanes) : 1;
    cost += share_of_points(p_, e) * cost_here;
  }
  return cost;
}

/// The axis along which strips leave the fewest loads, and how many rows a thread has, if that is worth it.
void RegionLowering::find_strips(schedule::Facts& f) {
  if (!target_.gpu || phases_ > 0 || !scans_.empty() || !p_.loops.empty() || random_ || groups_.size() < 2)
    return;
  for (const auto& o : p_.outputs)
    if (o.placed || regions_.placements.contains(o.node) || g_[o.node].op == Op::loop_stack) return;
  std::size_t loads = 0;
  bool chosen = false;
  for (const Entry& e : p_.entries) {
    if (e.kind != Entry::Kind::Load) continue;
    ++loads;
    chosen |= p_.space.jumps(e.index);
  }
  chosen &= std::max(f.vector, f.flat_vector) * f.out_narrowest < kWideStore;
  const bool few = !chosen && loads < kLeastLoads;
  if (loads < (chosen ? kLeastChosen : kLeastApart) || (few && f.vector > 1 && !vectors_of_rows(f))) return;
  const std::int64_t most =
      chosen ? std::max<std::int64_t>(kMostRows, kChosenBytes / f.out_narrowest) : kMostRows;
  const std::set<EntryId> turned = turned_with_others();
  double apart = 0;  // loads of single elements
  for (EntryId id = 0; id < p_.entries.size(); ++id)
    if (p_.entries[id].kind == Entry::Kind::Load && !turned.contains(id))
      apart += share_of_points(p_, p_.entries[id]) * load_cost(p_.entries[id], 1, 1);
  if (f.window > 0 && apart <= kMostShifted) return;
  const double wins = few ? kWinsOfFew : f.window_rounds > 0 ? 1 : kWins;
  double least = std::min(wins * loads_alone(f, turned), kShared * apart);
  std::int64_t run = 1;
  // Vectors along all axes, or where rows of a strip begin anywhere in these words of narrow elements.
  const int whole = flat_vector_elements(false, true), word = std::min(whole, kWide / f.out_narrowest);
  for (int g = last_group(); g-- > 0;) {
    run *= groups_[static_cast<std::size_t>(g) + 1].extent;
    const std::int64_t extent = groups_[static_cast<std::size_t>(g)].extent;
    const bool near = run * f.out_narrowest <= kNearRows;
    if (run < kLeastRun || (few && !near)) continue;
    for (std::int64_t rows = std::min(most, extent); rows >= 2; --rows) {
      if (static_cast<double>(rows) * prims_ > (few ? kMostShort : kMostWork)) continue;
      const double made = static_cast<double>(ceil_div(extent, rows) * rows) / static_cast<double>(extent);
      const auto take = [&](double left, int across) {
        if (made * left >= least) return;
        least = made * left;
        f.strip = g;
        f.strip_rows = static_cast<int>(rows);
        f.strip_vector = across;
      };
      take(loads_in_strip(g, rows, turned), 1);
      const bool vectors = near && (f.vector == 1 || vectors_of_rows(f)) && f.out_narrowest < kWide &&
                           f.window + f.window_rounds == 0;
      for (const int lanes : {whole, word})
        if (vectors && lanes > 1 && run % lanes == 0)
          if (const auto left = loads_in_vectors(g, rows, lanes)) take(*left, lanes);
    }
  }
}

/// A thread has `tile` rows of the axis `tile_axis`; its place among the other axes, and its strip, are its
/// number.
void RegionLowering::build_strips() {
  LoopDecl grid = open_grid();
  const int along = s_.tile_axis;
  const std::int64_t rows = s_.tile;
  std::vector<int> outer, inner;
  for (int g = 0; g <= last_group(); ++g)
    if (g != along) (g < along ? outer : inner).push_back(g);
  const std::int64_t strips = ceil_div(groups_[static_cast<std::size_t>(along)].extent, rows),
                     threads = product(outer) * strips * product(inner);
  std::vector<int> all(outer);
  all.push_back(along);
  all.insert(all.end(), inner.begin(), inner.end());
  std::int64_t blocks = ceil_div(threads, s_.block);
  const E block =
      block_in_turn(var(grid.var), all, outer.empty() ? strips : product({outer.front()}), blocks);
  const Range range = block_range(block, konst(s_.block), size(kRunExtent, threads));
  LoopDecl v;
  v.var = new_var();
  put_on_lanes(v);
  v.extent = range.count.id;
  lane_ = var(v.var);
  position_ = {};
  E at = range.first + lane_;
  if (s_.lanes > 1) {  // a vector is of one row: what its lanes have in common is its number's
    const E lanes = konst(s_.lanes), inside = at;
    at = divide(kernel::index_div(range.first, lanes) + kernel::index_div(lane_, lanes),
                size(kLastVectors, product(inner) / s_.lanes));
    const E place = inside - at * whole_of(inner);
    decompose(place, inner);
    if (inner.size() > 1) position_ = place;
    along_ = inner;
  } else {
    for (std::size_t i = inner.size(); i-- > 0;) {
      const auto [rest, coordinate] = divide_with_rest(at, extent(inner[i]));
      axis_[static_cast<std::size_t>(inner[i])] = coordinate;
      at = rest;
    }
  }
  if (!outer.empty()) {
    const auto [rest, strip] = divide_with_rest(at, size(kTileRows, strips));
    decompose(rest, outer);
    at = strip;
  }
  tile_first_ = kernel::min(at * konst(rows), extent(along) - konst(rows));
  for (strip_row_ = 0; strip_row_ < rows; ++strip_row_) {
    axis_[static_cast<std::size_t>(along)] = strip_place(0);
    forget();
    phase_body(v.body);
  }
  strip_row_ = -1;
  position_ = {};
  grid.body.push_back(loop(std::move(v)));
  close_grid(std::move(grid), blocks);
}

/// The coordinate so many steps behind that of the row at hand.
E RegionLowering::strip_place(std::int64_t steps) {
  const std::int64_t behind = strip_row_ + steps;
  return behind == 0 ? tile_first_ : tile_first_ + konst(behind);
}

/// What a load's index leads to, `steps` behind the row at hand, or at `place` along the axis; its constant
/// is what that has not. Rows of the same elements share buffer and index. `owner`: of the strides.
E RegionLowering::strip_element(Entry e, std::int64_t steps, E place, EntryId owner, E there) {
  const auto axis = static_cast<std::size_t>(s_.tile_axis);
  const Group& last = groups_.back();
  // A neighbour along the last axis is a number behind the point.
  const bool near = e.index.coef(last.last) == 1 && std::abs(e.index.c) <= kMostNumber &&
                    2 * std::abs(e.index.c) < last.extent;
  // So is what lies between the elements that the index steps over, such as the weights of a filter.
  const Index& first = p_.entries[owner].index;
  const bool between = !near && steps == 0 && !place && std::abs(e.index.c - first.c) <= kMostBetween &&
                       std::all_of(first.terms, first.terms + first.n, [&](const Term& term) {
                         return std::abs(term.coef) > std::abs(e.index.c - first.c);
                       });
  const std::int64_t begin = near      ? 0
                             : between ? first.c
                                       : e.index.c,
                     number = std::exchange(e.index.c, begin) - begin;
  const std::uint32_t buffer = input_buffer(e);
  Index at = e.index;
  at.c = steps * at.coef(groups_[axis].last);
  at.n = 0;
  for (const Term& term : std::span(e.index.terms, static_cast<std::size_t>(e.index.n)))
    if (!moves_buffer(term)) at.terms[at.n++] = term;
  const E row = axis_[axis];
  if (place) axis_[axis] = place;
  E index = p_.space.jumps(at) ? chosen_place(at, owner) : to_expr(at, owner);
  axis_[axis] = row;
  if (number != 0) index = index + konst(number);
  return load(buffer, g_[e.node].dtype, index, there);
}

/// An index of which values choose a part. What all rows of the strip share comes first, as an address that
/// they are distances behind, and loads of one tensor that step alike share these distances.
E RegionLowering::chosen_place(const Index& index, EntryId owner) {
  const AtomId along = groups_[static_cast<std::size_t>(s_.tile_axis)].last;
  const std::int64_t step = index.coef(along);
  const auto steps_alike = [&](const Entry& e) {
    return e.kind == Entry::Kind::Load && e.node == p_.entries[owner].node &&
           e.inside == p_.entries[owner].inside && p_.space.jumps(e.index) && e.index.coef(along) == step;
  };
  EntryId first = 0;
  while (first < owner && !steps_alike(p_.entries[first])) ++first;
  return base_and_steps(index, owner, first);
}

/// The part of an index that all rows of the strip share, whose parameters are `owner`'s, and then the rest.
E RegionLowering::base_and_steps(const Index& index, std::uint64_t owner, std::uint64_t owner_of_steps) {
  const AtomId along = groups_[static_cast<std::size_t>(s_.tile_axis)].last;
  if (index.coef(along) == 0 || index.n == 1) return to_expr(index, owner);
  Index steps, base = without(index, along);
  steps.c = std::exchange(base.c, 0);
  steps.n = 1;
  steps.terms[0] = {along, index.coef(along)};
  return to_expr(base, owner) + to_expr(steps, owner_of_steps);
}

/// A load in a strip.
E RegionLowering::strip_load(EntryId id) {
  Entry e = p_.entries[id];
  const std::int64_t steps = strip_steps(e.index, s_.tile_axis, true);
  e.index.c -= steps * e.index.coef(groups_[static_cast<std::size_t>(s_.tile_axis)].last);
  const E there = e.predicates >= 0 ? predicate_expr(e.predicates, -1) : E{};
  return strip_element(std::move(e), steps, {}, stride_owner(id), there);
}

/// A tensor turned around along the axis of the strip. Only rows in front of the strip's first or behind its
/// last may be those of the other end. Nothing, where it is not turned along that axis.
E RegionLowering::strip_turned(const Entry& pad, const Turned& turned, E there) {
  const Group& along = groups_[static_cast<std::size_t>(s_.tile_axis)];
  const Predicate& p = p_.links[static_cast<std::size_t>(p_.entries[pad.in[0]].predicates)].predicate;
  const std::int64_t step = turned.low.coef(along.last);
  if (p.t.n != 1 || p.t.terms[0] != Term{along.last, 1} || step == 0 ||
      turned.high.c - turned.low.c != -step * along.extent ||
      !is_same_along(without(turned.low, along.last), s_.tile_axis))
    return {};
  // How far it is turned says the row where its other end begins; an index has other axes' distances, too.
  const std::int64_t low_rows = p.extent - p.t.c, turn = along.extent - low_rows;
  const bool low = turn <= low_rows;
  const std::int64_t steps = low ? turn : -low_rows, row = strip_row_ + steps;
  if (std::abs(steps) > kMostSteps) return {};
  Entry e = p_.entries[pad.in[low ? 0 : 1]];
  e.index = low ? turned.low : turned.high;
  e.index.c -= steps * step;
  const E at = strip_place(steps), whole = extent(s_.tile_axis);
  const E place = row < 0          ? kernel::select(at < konst(0), at + whole, at)
                  : row >= s_.tile ? kernel::select(at < whole, at, at - whole)
                                   : at;
  return strip_element(std::move(e), 0, place, turned.owner, there);
}

/// The first link of the same condition on the same coordinates, but for steps along the strip's axis.
std::int32_t RegionLowering::strip_predicate_owner(std::int32_t link) const {
  const auto rest = [&](const Index& t) {
    return t.c -
           strip_steps(t, s_.tile_axis, false) * t.coef(groups_[static_cast<std::size_t>(s_.tile_axis)].last);
  };
  const Predicate& p = p_.links[static_cast<std::size_t>(link)].predicate;
  for (std::int32_t first = 0; first < link; ++first) {
    const Predicate& q = p_.links[static_cast<std::size_t>(first)].predicate;
    if (q.extent == p.extent && q.step == p.step && q.t.n == p.t.n && rest(q.t) == rest(p.t) &&
        std::equal(p.t.terms, p.t.terms + p.t.n, q.t.terms))
      return first;
  }
  return link;
}

/// Whether the links of a chain hold, up to `end`; nothing, where they always do: the strip's own rows are
/// inside of the axis. What holds or not for all rows decides how many there are along the axis, so that each
/// row asks one question.
E RegionLowering::strip_predicate(std::int32_t chain, std::int32_t end) {
  const Group& axis = groups_[static_cast<std::size_t>(s_.tile_axis)];
  E others{}, place{}, count{};
  for (std::int32_t l = chain; l != end; l = p_.links[static_cast<std::size_t>(l)].next) {
    const Predicate p = p_.links[static_cast<std::size_t>(l)].predicate;
    if (p.step == 1 && p.t.n == 1 && p.t.terms[0] == Term{axis.last, 1}) {
      const std::int64_t steps = strip_steps(p.t, s_.tile_axis, false), row = strip_row_ + steps;
      if (steps == p.t.c && row >= 0 && row < s_.tile && p.extent >= axis.extent) continue;
      if (!place) {
        const auto owner = static_cast<std::uint64_t>(predicate_owner(l));
        place = to_expr(p.t, owner, kPredicate);
        count = param(role(kExtent, owner, kLinkExtent), p.extent);
        continue;
      }
    }
    const E holds = link_expr(l);
    others = !others || others.id == holds.id ? holds : others & holds;
  }
  if (!place) return others;
  return (konst(0) <= place) & (place < (others ? kernel::select(others, count, konst(0)) : count));
}

}  // namespace kiln::lower
