#include "lower/pull_predicates.h"

namespace kiln::lower {

std::int32_t needed_predicates(const Pulled& pulled, std::int32_t chain, const Coords& coords) {
  const auto reads = [&](std::uint32_t entry) {
    bool found = false;
    for (const Index& c : coords) pulled.space.each_value(c, [&](std::uint32_t e) { found |= e == entry; });
    return found;
  };
  for (; chain >= 0; chain = pulled.links[static_cast<std::size_t>(chain)].next) {
    const Index& t = pulled.links[static_cast<std::size_t>(chain)].predicate.t;
    if (t.c != 0 || t.n != 1 || t.terms[0].coef != 1) break;
    const Atom& a = pulled.space.atom(t.terms[0].atom);
    if (a.kind != Atom::Kind::Value || reads(a.entry)) break;
  }
  return chain;
}

}  // namespace kiln::lower
