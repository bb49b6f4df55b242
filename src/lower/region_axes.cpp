// The axes of a region: in which order loops run over them, which of them are one, and how many adjacent
// elements accesses take at once.
//
// Invariant: nothing here makes an expression.
#include "lower/accesses.h"
#include "lower/axis_order.h"
#include "lower/join_quotients.h"
#include "lower/region_lowering.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <span>
#include <tuple>

namespace kiln::lower {
namespace {

constexpr int kMostScalarLoads = 2;       // beside those of whole vectors, …
constexpr int kMostSharedLoads = 4;       // … and where several vectors of a thread have them
constexpr std::int64_t kNarrowBytes = 4;  // of the narrowest that uses its bandwidth
constexpr std::int64_t kShortRun = 8;     // elements of a run that is too short to be moved as one
constexpr std::int64_t kManyRuns = 16;    // from which runs that lie apart are worth a tile
constexpr std::int64_t kLongRow = 512;    // bytes: of eight lines, one is written in two parts
constexpr std::int64_t kNarrow = std::int64_t{1} << 30;

}  // namespace

// ---- axes ----

/// Calls f on every index that will be evaluated: those of accesses, or of guards too, and all that they are
/// made of.
void RegionLowering::each_index(const std::function<void(const Index&)>& f, bool of_guards) const {
  std::vector<bool> seen(static_cast<std::size_t>(p_.space.atom_count()));
  auto visit = [&](auto&& self, const Index& i) -> void {
    f(i);
    for (int t = 0; t < i.n; ++t) {
      const AtomId a = i.terms[t].atom;
      if (a < p_.space.axis_count() || seen[static_cast<std::size_t>(a)]) continue;
      seen[static_cast<std::size_t>(a)] = true;
      self(self, p_.space.atom(a).of);
    }
  };
  for (const Entry& e : p_.entries) {
    if (e.kind == Entry::Kind::Load || e.kind == Entry::Kind::Iota) visit(visit, e.index);
    if (e.kind == Entry::Kind::Reduce && has_position(g_[e.node].op)) visit(visit, e.index);
  }
  for (const PredicateLink& l : p_.links) {
    if (of_guards) visit(visit, l.predicate.t);
    for (int t = 0; t < l.predicate.t.n && !of_guards; ++t)
      if (const AtomId a = l.predicate.t.terms[t].atom; a >= p_.space.axis_count())
        visit(visit, p_.space.atom(a).of);
  }
  for (const auto& o : p_.outputs) visit(visit, o.at);
}

/// The axes longer than 1, each a group; never empty, and with a reduced one where there is a reduction.
std::vector<Group> RegionLowering::axes_as_groups() const {
  const auto level_of = [&](int axis) {
    if (!p_.nest) return (p_.reduced >> axis) & 1 ? 0 : -1;
    for (std::size_t l = 1; l < p_.places.size(); ++l)
      if (!((p_.places[l] >> axis) & 1)) return static_cast<int>(l) - 1;
    return -1;
  };
  const auto has = [&](int axis) {
    std::uint32_t places = 0;
    for (std::size_t l = 0; l < p_.places.size(); ++l)
      places |= static_cast<std::uint32_t>((p_.places[l] >> axis) & 1) << l;
    return places;
  };
  std::vector<Group> groups;
  for (int a = 0; a < p_.domain.rank(); ++a)
    if (p_.domain[a] != 1)
      groups.push_back(
          {std::uint64_t{1} << a, a, p_.domain[a], ((p_.reduced >> a) & 1) != 0, level_of(a), has(a), {}});
  if ((phases_ > 0 || !scans_.empty()) &&
      std::none_of(groups.begin(), groups.end(), [](const Group& g) { return g.reduced; }))
    groups.insert(groups.begin(),
                  {0, -1, 1, true, 0, 1, {}});  // a reduction over extents of 1 still has its loop
  if (groups.empty()) groups.push_back({1, 0, 1, false, -1, 1, {}});
  return groups;
}

/// Orders the axes of reductions as memory has them, so that the innermost loop runs along adjacent elements
/// whatever views the program reads through: of the orders that the accesses have, one in which an innermost
/// step reads and writes the fewest bytes. Of these, one whose innermost axis is kept, since what serial
/// loops read in steps stays in the first cache; of these, one with the fewest loops. Reduced axes of
/// a level keep their order among each other where a result is a position, which counts in that order.
void RegionLowering::order_by_storage(std::vector<Group>& axes) const {
  if (target_.strict || phases_ == 0 || !scans_.empty() || !p_.loops.empty() || axes.size() < 2) return;
  std::vector<Access> accesses;
  const auto access = [&](const Index& index, NodeId node) {
    Access a{size_of(g_[node].dtype), {}};
    for (const Group& g : axes) {
      const std::int64_t stride = g.last < 0 ? 0 : std::abs(index.coef(g.last));
      a.strides.push_back(stride == 0 && g.last >= 0 && walks(index, g) ? kFar : stride);  // a gather's
    }
    accesses.push_back(std::move(a));
  };
  for (const auto& o : p_.outputs)
    if (!o.row) access(o.at, o.node);
  for (const Entry& e : p_.entries)
    if (e.kind == Entry::Kind::Load) access(e.index, e.node);
  if (target_.gpu && phases_ > 1 && axes.back().reduced && has_few_rows(axes, accesses, target_.threads))
    return;
  Order best(axes.size());
  std::iota(best.begin(), best.end(), std::size_t{0});
  Cost least = cost_of(best, axes, accesses);
  for (const Access& a : accesses) {
    Order order = order_of(a);
    if (a.strides[order.back()] == 0 || cost_of(order, axes, accesses) >= least) continue;
    least = cost_of(order, axes, accesses);
    best = std::move(order);
  }
  std::vector<Group> ordered;
  for (const std::size_t a : best) ordered.push_back(axes[a]);
  if (has_positions()) keep_reduced_order(ordered, axes, static_cast<int>(p_.places.size()) - 1);
  axes = std::move(ordered);
}

/// A map whose last axis is short may read runs along it that lie far apart along the axis before, and side
/// by side along another: a transposition of short runs. With the short axis outside it is a transposition of
/// elements, which goes through tiles.
void RegionLowering::order_short_runs(std::vector<Group>& axes) const {
  if (target_.gpu || phases_ > 0 || !scans_.empty() || !p_.loops.empty() || axes.size() < 3) return;
  const Group &last = axes.back(), &next = axes[axes.size() - 2];
  if (last.extent > kShortRun || last.last < 0 || next.extent < kManyRuns) return;
  const auto is_apart = [&](const Entry& e) {
    if (e.kind != Entry::Kind::Load || e.inside || p_.space.jumps(e.index)) return false;
    if (e.index.coef(last.last) != 1 || std::abs(e.index.coef(next.last)) < kManyRuns * last.extent)
      return false;
    return std::any_of(axes.begin(), axes.end() - 2, [&](const Group& g) {
      return g.last >= 0 && g.extent >= kManyRuns && e.index.coef(g.last) == last.extent;
    });
  };
  if (std::any_of(p_.entries.begin(), p_.entries.end(), is_apart))
    std::swap(axes.back(), axes[axes.size() - 2]);
}

void RegionLowering::collapse() {
  std::vector<Group> axes = axes_as_groups();
  if (!reads_both_ways()) order_by_storage(axes);
  order_short_runs(axes);
  widen_guards(axes);
  for (const Group& g : axes) {
    bool joins = !groups_.empty() && groups_.back().places == g.places;
    if (joins) {
      const int outer = groups_.back().last;
      each_index([&](const Index& i) { joins &= i.coef(outer) == i.coef(g.last) * g.extent; });
      if (!joins && !target_.gpu && !target_.strict && scans_.empty() && p_.loops.empty())
        joins = quotients_join(g_, p_, outer, g);
    }
    if (joins) {
      groups_.back().last = g.last;
      groups_.back().axes |= g.axes;
      groups_.back().extent *= g.extent;
    } else {
      groups_.push_back(g);
    }
  }
  if (target_.strict) join_reduced();
}

/// Makes adjacent reduced groups one, whose order must not depend on what reads them.
void RegionLowering::join_reduced() {
  std::vector<Group> joined;
  for (const Group& g : groups_) {
    if (joined.empty() || !g.reduced || !joined.back().reduced) {
      joined.push_back(g);
      continue;
    }
    Group& run = joined.back();
    if (run.pieces.empty()) run.pieces.push_back({run.last, run.extent});
    run.pieces.push_back({g.last, g.extent});
    run.last = g.last;
    run.axes |= g.axes;
    run.extent *= g.extent;
  }
  groups_ = std::move(joined);
}

/// Whether a kernel that writes into an argument's memory reads that argument anywhere but where the same
/// point writes.
bool RegionLowering::reads_what_it_writes() const {
  for (const auto& o : p_.outputs) {
    const auto at = regions_.placements.find(o.node);
    if (at == regions_.placements.end()) continue;
    const std::uint32_t arg = at->second.arg;
    for (const Entry& e : p_.entries) {
      if (e.kind != Entry::Kind::Load || g_[e.node].arg < 0 ||
          static_cast<std::uint32_t>(g_[e.node].arg) != arg)
        continue;
      if (g_[e.node].op != Op::leaf || e.index != o.at || phases_ > 0 || !scans_.empty()) return true;
    }
  }
  return false;
}

/// The longest kept group but the last of which no load has elements that also differ along the last group;
/// -1: there is none.
int RegionLowering::axis_apart() const {
  int found = -1;
  if (groups_.back().level == 0 || !scans_.empty() || !p_.loops.empty()) return -1;
  for (int g = 0; g < last_group(); ++g) {
    const Group& group = groups_[static_cast<std::size_t>(g)];
    const bool apart = std::none_of(p_.entries.begin(), p_.entries.end(), [&](const Entry& e) {
      return e.kind == Entry::Kind::Load && walks(e.index, group) && walks(e.index, groups_.back());
    });
    if (group.reduced || !apart) continue;
    if (found < 0 || groups_[static_cast<std::size_t>(found)].extent < group.extent) found = g;
  }
  return found;
}

/// Whether a load, or whether it is there, differs along reduced groups. Where values say what is loaded,
/// the axes count along which they change.
bool RegionLowering::differs_inside_rows(const Entry& load) const {
  const auto differs = [&](const Index& index) {
    std::uint64_t axes = axes_changing(p_, index, !p_.nest);
    for (const Term& term : std::span(index.terms, static_cast<std::size_t>(index.n)))
      axes |= p_.space.atom(term.atom).axes;
    return std::ranges::any_of(groups_, [&](const Group& g) { return g.reduced && (g.axes & axes) != 0; });
  };
  bool found = differs(load.index);
  for (std::int32_t at = load.predicates; at >= 0 && !found; at = p_.links[static_cast<std::size_t>(at)].next)
    found = differs(p_.links[static_cast<std::size_t>(at)].predicate.t);
  return found;
}

/// The longest kept group along which the largest load repeats, where all that go along rows walk the last
/// group: its rows serve several results. -1: there is none.
int RegionLowering::axis_repeated() const {
  if (groups_.back().level != 0 || !scans_.empty() || !p_.loops.empty()) return -1;
  const Entry* largest = nullptr;
  std::int64_t most = 0;
  for (const Entry& e : p_.entries) {
    if (e.kind != Entry::Kind::Load) continue;
    if (!differs_inside_rows(e)) continue;
    if (e.predicates >= 0 || p_.space.jumps(e.index)) return -1;
    std::int64_t points = 1;
    for (const Group& g : groups_)
      if (walks(e.index, g)) points *= g.extent;
    if (!walks(e.index, groups_.back())) return -1;
    if (points <= most) continue;
    most = points;
    largest = &e;
  }
  int found = -1;
  for (int g = 0; largest && g < last_group(); ++g) {
    const Group& group = groups_[static_cast<std::size_t>(g)];
    if (group.reduced || walks(largest->index, group)) continue;
    if (found < 0 || groups_[static_cast<std::size_t>(found)].extent < group.extent) found = g;
  }
  return found;
}

/// Whether the points of each load repeat along a group that is not short.
bool RegionLowering::all_loads_repeat() const {
  constexpr std::int64_t kLeast = 16;
  return std::ranges::all_of(p_.entries, [&](const Entry& e) {
    return e.kind != Entry::Kind::Load || std::ranges::any_of(groups_, [&](const Group& g) {
             return g.extent >= kLeast && !walks(e.index, g);
           });
  });
}

/// Adjacent iterations of a loop along a group whose loads along it are one aligned access; 0: none are.
int RegionLowering::loads_along(const Group& along) const {
  constexpr std::int64_t kTogether = 4;
  if (along.extent % kTogether != 0 || !along.pieces.empty()) return 0;
  bool any = false;
  for (const Entry& e : p_.entries) {
    if (e.kind != Entry::Kind::Load || e.index.coef(along.last) != 1) continue;
    const GraphNode& n = g_[e.node];
    const std::int64_t bytes = kTogether * size_of(n.dtype);
    const std::int64_t base = n.op == Op::leaf ? g_.args[static_cast<std::size_t>(n.arg)].alignment : 0;
    if (e.predicates >= 0 || e.index.c % kTogether != 0 || base % bytes != 0 || bytes > kAccessBytes)
      return 0;
    for (const Term& term : std::span(e.index.terms, static_cast<std::size_t>(e.index.n))) {
      if (term.atom >= p_.space.axis_count()) return 0;
      if ((along.axes >> term.atom & 1) == 0 && term.coef % kTogether != 0) return 0;
    }
    any = true;
  }
  return any ? kTogether : 0;
}

// ---- tiles, and what a GPU asks ----

/// Whether a load is strided along the last group and denser along the tile's rows.
bool RegionLowering::crosses(const Entry& e) const {
  if (e.kind != Entry::Kind::Load || e.inside || tile_rows_.empty()) return false;
  const std::int64_t stride = std::abs(e.index.coef(groups_.back().last));
  const std::int64_t dense =
      std::abs(e.index.coef(groups_[static_cast<std::size_t>(tile_rows_.back())].last));
  return !p_.space.jumps(e.index) && stride > 1 && dense > 0 && dense < stride;
}

/// The rows of a tile: the groups that the load with the axis `across` runs along, as one. Its columns: the
/// last groups up to those.
void RegionLowering::find_tile(schedule::Facts& f) {
  const std::int64_t enough = target_.gpu ? 64 : 16;
  const auto group = [&](int g) -> const Group& { return groups_[static_cast<std::size_t>(g)]; };
  tile_rows_ = {f.across};
  f.across_run = group(f.across).extent;
  int first_column = last_group();
  f.last_run = group(last_group()).extent;
  while (phases_ == 0 && first_column - 1 > f.across && f.last_run < enough)
    f.last_run *= group(--first_column).extent;
  const auto crossing =
      std::find_if(p_.entries.begin(), p_.entries.end(), [&](const Entry& e) { return crosses(e); });
  if (crossing == p_.entries.end()) {
    f.across = -1;
    return;
  }
  const Index& index = crossing->index;
  for (bool grew = true; grew && f.across_run < enough;) {
    grew = false;
    const Group& outermost = group(tile_rows_.front());
    for (int g = 0; g < first_column && !grew; ++g)
      if (std::find(tile_rows_.begin(), tile_rows_.end(), g) == tile_rows_.end() &&
          (phases_ == 0 || group(g).reduced) &&
          index.coef(group(g).last) == index.coef(outermost.last) * outermost.extent) {
        tile_rows_.insert(tile_rows_.begin(), g);
        f.across_run *= group(g).extent;
        grew = true;
      }
  }
  if (target_.gpu) f.across_vector = lanes_along_tile();
  f.reduces_across = may_reduce_tiles();
  f.across_narrowest = 8;
  f.across_bytes = 0;
  for (const Entry& e : p_.entries) {
    if (!crosses(e)) continue;
    const int bytes = static_cast<int>(size_of(g_[e.node].dtype));
    f.across_narrowest = std::min(f.across_narrowest, bytes);
    f.across_bytes += bytes;
  }
}

/// Adjacent elements along the rows of a tile that 16-byte accesses of all loads which cross it take at once.
int RegionLowering::lanes_along_tile() const {
  std::int64_t run = 1, elements = 8;
  for (int g : tile_rows_) run *= groups_[static_cast<std::size_t>(g)].extent;
  for (const Entry& e : p_.entries)
    if (crosses(e)) elements = std::min(elements, kAccessBytes / size_of(g_[e.node].dtype));
  if (elements < 2 || run % elements != 0) return 1;
  for (const Entry& e : p_.entries) {
    if (!crosses(e) || e.predicates >= 0) continue;
    std::int64_t stride = 1;
    for (std::size_t r = tile_rows_.size(); r-- > 0;) {
      const Group& g = groups_[static_cast<std::size_t>(tile_rows_[r])];
      if (e.index.coef(g.last) != stride) return 1;
      stride *= g.extent;
    }
    for (const Term& term : std::span(e.index.terms, static_cast<std::size_t>(e.index.n))) {
      const bool row = std::any_of(tile_rows_.begin(), tile_rows_.end(), [&](int r) {
        const Group& g = groups_[static_cast<std::size_t>(r)];
        return term.atom < p_.space.axis_count() && (g.axes >> term.atom & 1) != 0;
      });
      if (!row && (term.atom >= p_.space.axis_count() || term.coef % elements != 0)) return 1;
    }
    const GraphNode& n = g_[e.node];
    const std::int64_t bytes = elements * size_of(n.dtype);
    const std::int64_t base = n.op == Op::leaf ? g_.args[static_cast<std::size_t>(n.arg)].alignment : 0;
    if (e.index.c * size_of(n.dtype) % bytes != 0 || base % bytes != 0) return 1;
  }
  return static_cast<int>(elements);
}

/// Whether an index changes along a group.
bool RegionLowering::walks(const Index& index, const Group& g) const {
  for (const Term& term : std::span(index.terms, static_cast<std::size_t>(index.n))) {
    const Atom& atom = p_.space.atom(term.atom);
    if (atom.jumps || (atom.axes & g.axes) != 0) return true;  // a jump may
  }
  return false;
}

/// Whether an index takes elements of the last group one after the other, beside scans also from the last to
/// the first; then `aligned` tells whether it begins at a multiple of `elements` wherever the last group
/// begins, its constant apart.
bool RegionLowering::runs_along_last_group(const Index& index, std::int64_t elements, bool& aligned) const {
  const Group& last = groups_.back();
  if (index.coef(last.last) != 1 && !(walks_back(index) && !scans_.empty())) return false;
  aligned = true;
  for (const Term& term : std::span(index.terms, static_cast<std::size_t>(index.n))) {
    if (term.atom >= p_.space.axis_count() && walks(p_.space.atom(term.atom).of, last)) return false;
    if (term.atom < p_.space.axis_count() && (last.axes >> term.atom & 1) != 0) continue;
    aligned &= term.coef % elements == 0;
  }
  return true;
}

/// Adjacent elements of the last group that accesses of all operands along it may take at once: 16 bytes of
/// the narrowest if all are aligned so; else 4 bytes of the narrowest, or of others beside bytes, which is as
/// good as it gets for narrow elements and nothing new for others; half of it down columns that are scanned,
/// whose threads are few; else 1.
int RegionLowering::vector_elements() const {
  struct Access {
    const Index* index;
    DType type;
    std::int64_t base;  // bytes that its memory is a multiple of, or 0: any
    bool written;       // at all points
  };
  std::vector<Access> accesses;
  for (const Entry& e : p_.entries) {
    if (e.kind != Entry::Kind::Load || e.predicates >= 0) continue;
    const GraphNode& n = g_[e.node];
    const std::int64_t base = n.op == Op::leaf ? g_.args[static_cast<std::size_t>(n.arg)].alignment : 0;
    accesses.push_back({&e.index, n.dtype, base, false});
  }
  for (const auto& o : p_.outputs) {
    const std::int64_t base = o.placed ? g_.args[regions_.placements.at(o.node).arg].alignment : 0;
    accesses.push_back({&o.at, g_[o.node].dtype, base, phases_ == 0 && product_ == ir::kNoNode});
  }
  bool aligned = true;
  AccessWidths widths;
  for (const Access& a : accesses)
    if (runs_along_last_group(*a.index, 1, aligned))
      a.written ? widths.write(size_of(a.type)) : widths.read(size_of(a.type));
  // Results of one kept axis lie in one row, whose last vector may be cut.
  const bool one_row = phases_ == 1 && scans_.empty() && !groups_.back().reduced && kept_groups().size() == 1;
  const auto fits = [&](std::int64_t elements) {
    if (!one_row && groups_.size() > 1 && groups_.back().extent % elements != 0)
      return false;  // rows begin anywhere
    return std::all_of(accesses.begin(), accesses.end(), [&](const Access& a) {
      if (!runs_along_last_group(*a.index, elements, aligned)) return true;
      const std::int64_t bytes = std::min(kAccessBytes, elements * size_of(a.type));
      // of a thread's vector
      const std::int64_t first = walks_back(*a.index) ? a.index->c - (elements - 1) : a.index->c;
      return aligned && first * size_of(a.type) % bytes == 0 && a.base % bytes == 0;
    });
  };
  const bool scanned = !scans_.empty() && !groups_.back().reduced;
  for (const std::int64_t elements : {widths.elements(), scanned ? widths.elements() / 2 : 0,
                                      std::min(kNarrowBytes / widths.narrowest(), widths.most()),
                                      widths.narrowest() == 1 && widths.widest() > 1 ? kNarrowBytes / 2 : 0})
    if (elements > 1 && fits(elements)) return static_cast<int>(elements);
  return 1;
}

/// Adjacent elements that 16-byte accesses take at once along all groups as one: of every output and of the
/// loads that walk the groups so, of which there must be one; few others, which each lane makes for itself.
/// 1: not so. `rows`: of rows of the last axes, where all that lies along the last one lies so; others'
/// elements would be loaded one by one at places that are a vector apart. `shared`: others serve several
/// vectors.
int RegionLowering::flat_vector_elements(bool rows, bool shared) const {
  const auto flat = [&](const Entry& e) { return e.predicates < 0 && runs_through(e.index); };
  AccessWidths widths;
  int loads = 0, others = 0;
  for (const Entry& e : p_.entries) {
    if (e.kind != Entry::Kind::Load || (rows && !walks(e.index, groups_.back()))) continue;
    ++(flat(e) ? loads : others);
    if (flat(e)) widths.read(size_of(g_[e.node].dtype));
  }
  for (const auto& o : p_.outputs) {
    if (rows && o.row) continue;
    if (o.placed || !runs_through(o.at)) return 1;
    widths.write(size_of(g_[o.node].dtype));
  }
  const std::int64_t elements = widths.elements();
  if (loads == 0 || others > (rows ? 0 : shared ? kMostSharedLoads : kMostScalarLoads) || elements <= 1)
    return 1;
  if (rows && scans_.empty() && widths.widest() >= kNarrowBytes && product(reduced_groups()) % elements != 0)
    return 1;  // single elements are read as fast
  for (const Entry& e : p_.entries) {
    if (e.kind != Entry::Kind::Load || !flat(e)) continue;
    const GraphNode& n = g_[e.node];
    const std::int64_t base = n.op == Op::leaf ? g_.args[static_cast<std::size_t>(n.arg)].alignment : 0;
    const std::int64_t bytes = std::min(kAccessBytes, elements * size_of(n.dtype));
    if (e.index.c * size_of(n.dtype) % bytes != 0 || base % bytes != 0) return 1;
  }
  return static_cast<int>(elements);
}

/// Whether every vector of an output begins at a multiple of its size, or of a cache line: what a store past
/// the caches needs.
bool RegionLowering::stores_whole_vectors(NodeId output) const {
  if (regions_.placements.contains(output)) return false;
  const Group& last = groups_.back();
  const std::int64_t size = size_of(g_[output].dtype), bytes = s_.lanes * size;
  if (s_.kept_from >= 0 && !target_.gpu) return false;
  if (std::abs(p_.full_linear().coef(last.last)) > 1) return false;
  if (groups_.size() == 1 && p_.full_linear().coef(last.last) > 0) return true;
  if (s_.round > 0 || s_.inside >= 0) {
    std::int64_t together = size;
    for (int g = s_.lane_axis; g <= last_group(); ++g)
      together *= groups_[static_cast<std::size_t>(g)].extent;
    return adjoins(p_.full_linear()) && ((s_.round > 0 && s_.lane_axis == 0) || together % 64 == 0);
  }
  return last.extent * size % std::min<std::int64_t>(64, bytes & -bytes) == 0;
}

/// Whether rows of an output are so long that a loop may begin each before its first element, where a line
/// begins, and mask what is before it. Only registers of masks make that cheap.
bool RegionLowering::stores_long_rows(NodeId output) const {
  if (target_.gpu || target_.vector_bytes < 64 || regions_.placements.contains(output)) return false;
  if (s_.kept_from >= 0 || s_.round > 0 || s_.inside >= 0 || s_.tile > 1) return false;
  const Group& last = groups_.back();
  const bool cut = s_.form == Form::Tiles || s_.form == Form::Stripes;
  const std::int64_t row = cut ? std::min(s_.block, last.extent) : last.extent;
  return p_.full_linear().coef(last.last) == 1 && row * size_of(g_[output].dtype) >= kLongRow;
}

/// The same of a reduction's results, whose columns are on lanes.
bool RegionLowering::stores_whole_columns(const Pulled::Output& o) const {
  if (target_.gpu || s_.form != Form::Columns || s_.tile == 1 || regions_.placements.contains(o.node))
    return false;
  const std::int64_t size = size_of(g_[o.node].dtype), bytes = s_.lanes * size;
  if (bytes % 64 != 0 || o.at.coef(groups_.back().last) != 1 || o.at.c * size % 64 != 0) return false;
  return std::all_of(o.at.terms, o.at.terms + o.at.n, [&](const Term& term) {
    return term.atom < p_.space.axis_count() &&
           ((groups_.back().axes >> term.atom & 1) != 0 || term.coef * size % 64 == 0);
  });
}

/// Whether every index, and every step on the way to it, is far from overflowing 32 bits.
bool RegionLowering::index_is_narrow() const {
  // A nest's positions are those of kept groups, or in one other; a tile's those of kept or of reduced
  // groups.
  double points = 1, reduced = 1;
  for (const Group& g : groups_) {
    const bool apart = g.reduced && s_.tile > 1 && s_.form == Form::Columns;
    if (s_.form != Form::Nest || !g.reduced)
      (apart ? reduced : points) *= static_cast<double>(std::max<std::int64_t>(g.extent, 1));
  }
  points = std::max(points, reduced);
  if (s_.form == Form::Nest)
    for (const Group& g : groups_) points = std::max(points, static_cast<double>(g.extent));
  for (const LoopRun& run : p_.loops)
    for (const LoopRun::Yield& y : run.yields)
      points = std::max(points, static_cast<double>(g_[y.stack].numel));
  bool narrow = points < static_cast<double>(kNarrow) && out_.grid < kNarrow && rows_ * chunks_ < kNarrow;
  each_index([&](const Index& i) {
    std::int64_t reach = std::abs(i.c);
    for (const Term& term : std::span(i.terms, static_cast<std::size_t>(i.n)))
      reach +=
          std::abs(term.coef) * (p_.space.atom(term.atom).extent + std::abs(p_.space.atom(term.atom).lo));
    narrow &= reach < kNarrow;
  });
  return narrow;
}

}  // namespace kiln::lower
