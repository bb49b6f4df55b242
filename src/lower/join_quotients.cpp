#include "lower/join_quotients.h"

#include <optional>
#include <span>

namespace kiln::lower {
namespace {

/// Calls f on every index that will be evaluated, but not on what it is made of.
template <class F>
void each_whole_index(const plan::Graph& g, const Pulled& p, const F& f) {
  for (const Entry& e : p.entries)
    if (e.kind == Entry::Kind::Load || e.kind == Entry::Kind::Iota ||
        (e.kind == Entry::Kind::Reduce && ir::has(g[e.node].op, ir::POSITION)))
      f(e.index);
  for (const PredicateLink& l : p.links) f(l.predicate.t);
  for (const auto& o : p.outputs) f(o.at);
}

/// What a step along `outer` adds to an index beyond what `steps` of them along `inner` do, if that is the
/// same at every point: a quotient's is where the divisor divides what its dividend has.
std::optional<std::int64_t> excess(const IndexSpace& space, const Index& index, int outer, int inner,
                                   std::int64_t steps) {
  std::int64_t sum = index.coef(outer) - index.coef(inner) * steps;
  for (const Term& term : std::span(index.terms, static_cast<std::size_t>(index.n))) {
    const Atom& a = space.atom(term.atom);
    if (a.kind == Atom::Kind::Axis || a.kind == Atom::Kind::Value || a.kind == Atom::Kind::Position) continue;
    const auto of = excess(space, a.of, outer, inner, steps);
    // above 0 a dividend that the joined axis makes would be negative somewhere
    if (!of || *of > 0 || *of % a.divisor != 0) return std::nullopt;
    if (a.kind != Atom::Kind::Mod) sum += term.coef * (*of / a.divisor);
  }
  return sum;
}

}  // namespace

bool quotients_join(const plan::Graph& g, const Pulled& p, int outer, const Group& inner) {
  bool joins = outer >= 0 && inner.last >= 0;
  each_whole_index(g, p, [&](const Index& i) {
    joins = joins && excess(p.space, i, outer, inner.last, inner.extent) == 0;
  });
  return joins;
}

}  // namespace kiln::lower
