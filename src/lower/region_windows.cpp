// Maps of a GPU whose operands begin anywhere in a row or are there for a part of the points: when they go by
// tested runs (codegen/cuda/cuda_windows.cpp), and how their loads become few.
//
// Invariant: nothing here changes what a point reads; a load that is not there is 0.
#include "lower/accesses.h"
#include "lower/region_lowering.h"
#include "math/expand.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

namespace kiln::lower {
namespace {

constexpr int kMostScalarLoads = 2;       // beside those of whole vectors
constexpr std::int64_t kNarrowBytes = 4;  // of the narrowest that uses its bandwidth

/// Whether what is there on each lane is decided by an index of its own, the same in all rows.
bool lanes_jump(const Pulled& p, const std::vector<Group>& groups, const Entry& pad) {
  if (pad.predicates < 0) return false;
  const Index& t = p.links[static_cast<std::size_t>(pad.predicates)].predicate.t;
  return p.space.jumps(t) && first_jump(p, groups, t) + 1 == static_cast<int>(groups.size());
}

}  // namespace

// ---- facts

/// Whether a load reads so many adjacent elements inside a row of the last group, forwards or backwards, all
/// of them or none but at one place or two.
bool RegionLowering::is_window(const Entry& e, std::int64_t elements) const {
  const Group& last = groups_.back();
  const auto stays = [&](const Index& index) {  // it is affine inside a row
    return std::none_of(index.terms, index.terms + index.n, [&](const Term& t) {
      return t.atom >= p_.space.axis_count() && (p_.space.atom(t.atom).axes & last.axes) != 0;
    });
  };
  if (std::abs(e.index.coef(last.last)) != 1 || !stays(e.index)) return false;
  for (std::int32_t l = e.predicates; l >= 0; l = p_.links[static_cast<std::size_t>(l)].next) {
    const Predicate& p = p_.links[static_cast<std::size_t>(l)].predicate;
    const std::int64_t along = std::abs(p.t.coef(last.last));
    if (!stays(p.t) || (along != 0 && (p.step != 1 || along != 1 || p.extent < elements))) return false;
  }
  return true;
}

/// Whether the vectors of a map's load along the last group begin at multiples of their size.
bool RegionLowering::begins_whole(const Entry& e, std::int64_t elements) const {
  const GraphNode& n = g_[e.node];
  const std::int64_t bytes = std::min(kAccessBytes, elements * size_of(n.dtype));
  const std::int64_t base = n.op == Op::leaf ? g_.args[static_cast<std::size_t>(n.arg)].alignment : 0;
  if (e.index.c * size_of(n.dtype) % bytes != 0 || base % bytes != 0) return false;
  if (runs_through(e.index)) return true;
  bool aligned = true;
  return groups_.back().extent % elements == 0 && e.index.coef(groups_.back().last) == 1 &&
         runs_along_last_group(e.index, elements, aligned) && aligned;
}

/// Whether a load may be there on some lanes of a vector only.
bool RegionLowering::lanes_decide(const Entry& e, std::int64_t elements) const {
  const Group& last = groups_.back();
  for (std::int32_t l = e.predicates; l >= 0; l = p_.links[static_cast<std::size_t>(l)].next)
    if (last.extent % elements != 0 || walks(p_.links[static_cast<std::size_t>(l)].predicate.t, last))
      return true;
  return false;
}

/// Places along a row of a map's results at which a run of so many elements may have to be computed one by
/// one: where a load begins or ends to be there, and the end of the row, unless runs begin there as well.
int RegionLowering::breaks_in_row(std::int64_t elements) const {
  const Group& last = groups_.back();
  std::vector<std::int64_t> places;
  if (last.extent % elements != 0) places.push_back(last.extent);
  for (const Entry& e : p_.entries) {
    if (e.kind != Entry::Kind::Load) continue;
    for (std::int32_t l = e.predicates; l >= 0; l = p_.links[static_cast<std::size_t>(l)].next) {
      const Predicate& p = p_.links[static_cast<std::size_t>(l)].predicate;
      const std::int64_t along = p.t.coef(last.last);
      if (along == 0) continue;
      for (const std::int64_t edge : {-p.t.c, p.extent - p.t.c}) {
        const std::int64_t at = along > 0 ? edge : 1 - edge;
        if (at > 0 && at < last.extent && at % elements != 0) places.push_back(at);
      }
    }
  }
  std::sort(places.begin(), places.end());
  return static_cast<int>(std::unique(places.begin(), places.end()) - places.begin());
}

/// How a map whose results run through all groups as one, and of which an operand begins anywhere in a row or
/// is there for a part of the points, is computed by tested runs: by vectors of so many elements; or by
/// rounds of a warp, as many for each run, where elements that begin anywhere are so wide that vectors are no
/// better. Neither: there is no such operand, or too many are neither that nor constant along a row, or too
/// many runs would fail.
void RegionLowering::find_windows(schedule::Facts& f) const {
  constexpr std::int64_t kWarp = 32, kRunsABreak = 3;
  constexpr int kFewWindows = 4;  // loads, below which rounds bring nothing
  if (!p_.loops.empty()) return;
  AccessWidths widths;
  for (const auto& o : p_.outputs) {
    if (o.placed || !runs_through(o.at) || g_[o.node].op == Op::loop_stack) return;
    widths.write(size_of(g_[o.node].dtype));
  }
  const Group& last = groups_.back();
  for (const Entry& e : p_.entries)
    if (e.kind == Entry::Kind::Load && std::abs(e.index.coef(last.last)) == 1)
      widths.read(size_of(g_[e.node].dtype));
  const std::int64_t elements = widths.elements();
  int whole = 0, anywhere = 0, wide = 0, partly = 0, others = 0;
  for (const Entry& e : p_.entries) {
    if (e.kind != Entry::Kind::Load || !walks(e.index, last)) continue;
    if (begins_whole(e, elements)) {
      ++whole;
      partly += e.predicates >= 0 && !p_.space.jumps(e.index);
    } else if (!p_.space.jumps(e.index) && is_window(e, elements)) {
      ++anywhere;
      wide += size_of(g_[e.node].dtype) >= kNarrowBytes;
    } else {
      ++others;
    }
  }
  if (anywhere + partly == 0 || others > kMostScalarLoads) return;
  const auto seldom_fail = [&](std::int64_t run) {
    return last.extent >= breaks_in_row(run) * kRunsABreak * std::max(run, kWarp * elements);
  };
  const bool whole_rows = last.extent % elements == 0;
  if (wide > 0 && (!whole_rows || whole < anywhere)) {
    for (const int rounds : {4, 2})
      if (anywhere >= kFewWindows && f.window_rounds == 0 &&
          last.extent >= (breaks_in_row(1) + 1) * kRunsABreak * rounds * kWarp)
        f.window_rounds = rounds;
    return;
  }
  if (elements * widths.narrowest() >= kNarrowBytes && last.extent >= elements && seldom_fail(elements))
    f.window = static_cast<int>(elements);
}

/// Whether most loads that are there for a part of the points are of single elements, however wide
/// the vectors of the others are, or most narrow ones of a map are some elements apart. Then adjacent
/// threads have adjacent elements: a warp's access is one stretch.
bool RegionLowering::loads_elements(const schedule::Facts& f) const {
  constexpr std::int64_t kMostApart = 16;
  const std::int64_t lanes = std::max(f.vector, f.flat_vector);
  int vectors = 0, elements = 0, apart = 0, adjacent = 0;
  for (const Entry& e : p_.entries) {
    if (e.kind != Entry::Kind::Load || size_of(g_[e.node].dtype) >= kNarrowBytes) continue;
    const std::int64_t step = std::abs(e.index.coef(groups_.back().last));
    apart += step > 1 && step <= kMostApart;
    adjacent += step == 1;
  }
  if (lanes > 1 && phases_ == 0 && apart > adjacent) return true;
  for (const Entry& e : p_.entries) {
    if (e.kind != Entry::Kind::Load || e.predicates < 0 || std::abs(e.index.coef(groups_.back().last)) != 1)
      continue;
    if (begins_whole(e, lanes) && !lanes_decide(e, lanes))
      ++vectors;
    else  // (of a map's narrow elements a warp would store half of a stretch)
      elements += phases_ > 0 || size_of(g_[e.node].dtype) >= kNarrowBytes;
  }
  return lanes > 1 && elements > 2 * vectors + kMostScalarLoads;
}

/// Whether a load that runs along the lanes begins where their vectors do, as far as accesses ask for it.
bool RegionLowering::begins_at_vectors(const Entry& e) const {
  if (bunches_by_runs()) return begins_whole(e, s_.run_lanes) && !lanes_decide(e, s_.run_lanes);
  if (s_.early) return e.predicates < 0 && runs_through(e.index);
  if (s_.tile > 1 && phases_ == 0) return begins_strip(e);
  if (e.predicates < 0 && !s_.windows) return true;
  if (!scans_.empty()) return false;
  const bool map = (s_.form == Form::Flat || s_.form == Form::Rows) && phases_ == 0;
  const bool columns = (s_.form == Form::Columns || s_.form == Form::SplitColumns) && s_.kept_from < 0;
  return (map || columns) && begins_whole(e, s_.lanes);
}

// ---- values

/// Whether two loads read the same tensor along the axes in the same way, from another element on.
bool RegionLowering::same_walk(const Entry& a, const Entry& b) const {
  return a.kind == Entry::Kind::Load && b.kind == Entry::Kind::Load && a.node == b.node &&
         a.inside == b.inside && a.index.n == b.index.n &&
         std::equal(a.index.terms, a.index.terms + a.index.n, b.index.terms);
}

/// The load whose strides a load shares: on a GPU the neighbours in a stencil then are one index, and
/// addresses.
EntryId RegionLowering::stride_owner(EntryId id) const {
  if (!target_.gpu) return id;
  for (EntryId first = 0; first < id; ++first)
    if (same_walk(p_.entries[first], p_.entries[id])) return first;
  return id;
}

/// The load in whose buffer a tested run's load is, a known number of elements away: the neighbours along a
/// row are then loaded once. Rather one of whole vectors.
EntryId RegionLowering::near_window(EntryId id) const {
  const Entry& e = p_.entries[id];
  if (!s_.windows || s_.lanes == 1 || e.index.coef(groups_.back().last) != 1) return id;
  const std::int64_t most = s_.lanes;
  EntryId nearest = id;
  for (EntryId other = 0; other < p_.entries.size(); ++other) {
    const Entry& o = p_.entries[other];
    if (!same_walk(o, e) || std::abs(o.index.c - e.index.c) > most) continue;
    if (begins_whole(o, s_.lanes)) return other;
    nearest = std::min(nearest, other);
  }
  return nearest;
}

/// The link whose parameters a predicate has. In a GPU's reduction it is the first of equal ones, so that the
/// taps of a convolution ask once for each row and column of it. (A map of 25 taps takes 1.05 times as long
/// so: what its guards are stays in registers.)
std::int32_t RegionLowering::predicate_owner(std::int32_t link) const {
  constexpr std::size_t kMost = 256;  // links that are looked through
  if (strip_row_ >= 0) return strip_predicate_owner(link);
  if (!target_.gpu || phases_ == 0 || p_.links.size() > kMost) return link;
  const Predicate& p = p_.links[static_cast<std::size_t>(link)].predicate;
  for (std::int32_t first = 0; first < link; ++first) {
    const Predicate& q = p_.links[static_cast<std::size_t>(first)].predicate;
    if (q.t == p.t && q.extent == p.extent && q.step == p.step) return first;
  }
  return link;
}

/// The index of a load that is there for one point along an axis only, with a multiple of that point's
/// coordinate, which is 0 there, so that it takes the steps of another load; or as it is.
Index RegionLowering::with_steps_of(const Entry& e, const Predicate& p, const Entry& other) {
  if (p.extent != 1 || p.t.n == 0) return e.index;
  const Term& along = p.t.terms[0];
  const std::int64_t missing = other.index.coef(along.atom) - e.index.coef(along.atom);
  return missing % along.coef != 0 ? e.index : p_.space.add(e.index, p_.space.mul(p.t, missing / along.coef));
}

/// The loads of a tensor turned around (its end and then its beginning), on a GPU. Nothing, where a pad is
/// not that.
std::optional<Turned> RegionLowering::find_turned(const Entry& pad) {
  if (!target_.gpu || pad.in[1] == kNoEntry) return std::nullopt;
  const Entry &low = p_.entries[pad.in[0]], &high = p_.entries[pad.in[1]];
  if (low.kind != Entry::Kind::Load || high.kind != Entry::Kind::Load || low.node != high.node ||
      low.inside || high.inside || low.predicates != pad.predicates || low.predicates < 0 ||
      high.predicates < 0)
    return std::nullopt;
  const PredicateLink &first = p_.links[static_cast<std::size_t>(low.predicates)],
                      &second = p_.links[static_cast<std::size_t>(high.predicates)];
  const Predicate p = first.predicate, q = second.predicate;
  Index behind = p.t;
  behind.c -= p.extent;
  // One begins where the other ends, and every point is in one of them.
  if (first.next != pad.predicates_end || second.next != pad.predicates_end || p.step != 1 || q.step != 1 ||
      q.t != behind)
    return std::nullopt;
  const Index at_low = with_steps_of(low, p, high), at_high = with_steps_of(high, q, low);
  if (at_low.n != at_high.n || at_low.c != low.index.c ||
      !std::equal(at_low.terms, at_low.terms + at_low.n, at_high.terms))
    return std::nullopt;
  return Turned{at_low, at_high, stride_owner(at_low == low.index ? pad.in[0] : pad.in[1])};
}

/// These loads as one from either of two places. Nothing, where a pad is not that.
E RegionLowering::turned_load(const Entry& pad) {
  if (!staged_.empty() || pad.in[1] == kNoEntry || scratch_[pad.in[0]] >= 0 || scratch_[pad.in[1]] >= 0)
    return {};
  const std::optional<Turned> turned = find_turned(pad);
  if (!turned) return {};
  const Entry &low = p_.entries[pad.in[0]], &high = p_.entries[pad.in[1]];
  const DType stored = g_[low.node].dtype;
  const auto there = [&] { return pad.predicates_end >= 0 ? predicate_expr(pad.predicates_end, -1) : E{}; };
  if (strip_row_ >= 0)
    if (const E element = strip_turned(pad, *turned, there()))
      return kernel::cast(element, compute_type(stored));
  const Predicate& p = p_.links[static_cast<std::size_t>(low.predicates)].predicate;
  const auto owner = static_cast<std::uint64_t>(low.predicates);
  const E t = to_expr(p.t, owner, kPredicate),
          past = kernel::min(
              kernel::max(t - param(role(kExtent, owner, kLinkExtent), p.extent) + konst(1), konst(0)),
              konst(1));
  Index from_buffer = turned->low;
  from_buffer.c = 0;
  for (const Term& term : std::span(low.index.terms, static_cast<std::size_t>(low.index.n)))
    if (moves_buffer(term)) {  // the buffer begins there
      Index moved{};
      moved.terms[moved.n++] = term;
      from_buffer = p_.space.add(from_buffer, p_.space.mul(moved, -1));
    }
  const E at = to_expr(from_buffer, turned->owner) +
               past * param(role(kOffset, owner, kLinkExtent), turned->high.c - turned->low.c);
  const E inside = there();
  return kernel::cast(load(input_buffer(low, begins_at_vectors(high)), stored, at, inside),
                      compute_type(stored));
}

E RegionLowering::build_pad(EntryId id) {
  const Entry& e = p_.entries[id];
  const DType type = compute_type(g_[e.node].dtype);
  if (const E turned = turned_load(e)) return turned;
  const E fill = e.in[1] == kNoEntry ? kernel::constant(k_.pool, type, 0) : build(e.in[1]);
  const E body = build(e.in[0]);
  const bool by_lanes = !target_.gpu && lanes_jump(p_, groups_, e);
  EntryId source = e.in[0];
  while (by_lanes && p_.entries[source].kind == Entry::Kind::Op && g_[p_.entries[source].node].op == Op::cast)
    source = p_.entries[source].in[0];
  const Entry& in = p_.entries[source];
  // What is not there is loaded as 0 anyway, of whatever type. (A CPU chooses between vectors by a branch.)
  const bool zero = fill.node().prim == Prim::Const && fill.node().imm == 0;
  if ((target_.gpu || by_lanes) && zero && in.kind == Entry::Kind::Load && in.predicates == e.predicates &&
      !in.inside && (staged_.empty() || staged_[source] < 0) && scratch_[source] < 0)
    return body;
  const E there = predicate_expr(e.predicates, e.predicates_end);
  if (!there) return body;
  const kernel::ExprNode &x = body.node(), &y = fill.node();
  if (x.prim == Prim::Cast && y.prim == Prim::Cast && is_half(k_.pool[x.a].type) &&
      k_.pool[x.a].type == k_.pool[y.a].type)  // one of two halves is widened, not both
    return kernel::cast(kernel::select(there, E{&k_.pool, x.a}, E{&k_.pool, y.a}), type);
  return kernel::select(there, body, fill);
}

/// A choice of values as a choice of what is stored, which then can be made before it is computed.
E RegionLowering::narrow_choice(E value, DType type, int depth) {
  constexpr int kMostChoices = 8;
  const kernel::ExprNode n = value.node();
  if (n.prim != Prim::Select || n.type == type || depth == kMostChoices) return narrow(value, type);
  const E yes = narrow_choice({value.pool, n.b}, type, depth + 1),
          no = narrow_choice({value.pool, n.c}, type, depth + 1);
  return kernel::select({value.pool, n.a}, yes, no);
}

}  // namespace kiln::lower
