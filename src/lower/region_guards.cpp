// RegionLowering: guards of outer axes that become guards of longer ones.
//
// A map that joins arrays along axis 0, or pads, rolls or updates along it, walks memory as one row through
// all axes; only its guards tell axis 0 from the others. 0 <= x < n is the same as 0 <= x·w + y < n·w for
// every y in [0, w). Written in this way a guard walks two axes as accesses do, and they become one
// (collapse): instead of short rows there is one long row, in which each guard changes once.
#include "lower/accesses.h"
#include "lower/region_lowering.h"

#include <algorithm>

namespace kiln::lower {
namespace {

constexpr std::int64_t kNarrowBytes = 4;  // of an element that is accessed as fast as a vector
constexpr std::size_t kMostWidened = 16;  // guards, each asked about on the way along the longer axis

bool joins_axes(const Index& i, const Group& outer, const Group& inner) {
  return i.coef(outer.last) == i.coef(inner.last) * inner.extent;
}

/// Whether a guard is one of the outer axis alone, which it counts one by one.
bool counts_outer(const Predicate& p, const IndexSpace& space, const Group& outer, const Group& inner) {
  return p.step == 1 && std::abs(p.t.coef(outer.last)) == 1 &&
         std::none_of(p.t.terms, p.t.terms + p.t.n, [&](const Term& term) {
           const std::uint64_t of = space.atom(term.atom).axes;
           return (of & inner.axes) != 0 || (term.atom != outer.last && (of & outer.axes) != 0);
         });
}

/// The same guard, of both axes as one.
void widen(Predicate& p, IndexSpace& space, const Group& outer, const Group& inner) {
  const std::int64_t step = p.t.coef(outer.last), width = inner.extent;
  const Index along = space.mul(space.axis(inner.last), step);
  p.t = space.add(space.add(space.mul(p.t, width), along), step < 0 ? width - 1 : 0);
  p.extent *= width;
}

}  // namespace

/// Widens the guards that alone keep neighbours among the axes apart, of maps. On a GPU a guard that does not
/// change along a row is better, unless the row's narrow elements are no whole vectors: along longer rows
/// these go by tested runs.
void RegionLowering::widen_guards(const std::vector<Group>& axes) {
  if (phases_ > 0 || !scans_.empty() || !p_.loops.empty()) return;
  if (p_.links.empty() || p_.links.size() > kMostWidened) return;
  std::int64_t narrowest = kAccessBytes;
  for (const Entry& e : p_.entries)
    if (e.kind == Entry::Kind::Load) narrowest = std::min<std::int64_t>(narrowest, size_of(g_[e.node].dtype));
  if (target_.gpu && narrowest >= kNarrowBytes) return;
  bool widened = false;  // the guards so far, which go on to the end of a row
  for (std::size_t a = 0; a + 1 < axes.size(); ++a) {
    const Group &outer = axes[a], &inner = axes[a + 1];
    if (outer.last < 0 || inner.last < 0 || outer.places != inner.places) continue;
    std::int64_t row = narrowest;
    for (std::size_t i = a + 1; i < axes.size(); ++i) row *= axes[i].extent;
    if (target_.gpu && !widened && row % kAccessBytes == 0) continue;
    bool joins = std::ranges::all_of(p_.links, [&](const PredicateLink& l) {
      return joins_axes(l.predicate.t, outer, inner) || counts_outer(l.predicate, p_.space, outer, inner);
    });
    each_index([&](const Index& i) { joins = joins && joins_axes(i, outer, inner); }, false);
    for (PredicateLink& l : p_.links)
      if (joins && !joins_axes(l.predicate.t, outer, inner)) {
        widen(l.predicate, p_.space, outer, inner);
        widened = true;
      }
  }
}

}  // namespace kiln::lower
