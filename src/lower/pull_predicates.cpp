#include "lower/pull_predicates.h"

#include <numeric>

namespace kiln::lower {
namespace {

std::int64_t floor_of(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0); }

}  // namespace

Predicate predicate_of(Index t, std::int64_t extent, std::int64_t step) {
  std::int64_t factor = 0;
  for (int i = 0; i < t.n; ++i) factor = std::gcd(factor, t.terms[i].coef);
  if (factor <= 1 || step != 1) return {t, extent, step};
  const std::int64_t last = floor_of(extent - 1 - t.c, factor), first = floor_of(t.c, factor);
  if (last + first < 0) return {t, extent, step};  // it never holds
  for (int i = 0; i < t.n; ++i) t.terms[i].coef /= factor;
  t.c = first;
  return {t, last + first + 1, 1};
}

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
