// RegionLowering: maps that read two columns of a product together, n and n + partner where n mod 2 partner
// < partner, as a rotation of a head's halves does. A point of the domain stands for both columns: it reads
// both sums, and its results are stored for both. The maps may have their points in another order than the
// product, as heads in front of positions.
//
// Invariant: groups are axes of the domain in the order of the product, so that its row and its column are
// decomposed into them.
#include "lower/region_lowering.h"

#include <algorithm>
#include <array>

namespace kiln::lower {

/// Whether the maps read the product as plan::Region::partner says: at positions that are equal but for a
/// constant, which is 0 or the distance of partners, and which together are the product's, each once.
bool RegionLowering::reads_partners() const {
  const Index* read = nullptr;
  for (const Entry& e : p_.entries) {
    if (e.kind != Entry::Kind::Product) continue;
    if (e.index.c != 0 && e.index.c != partner_) return false;
    if (!read) read = &e.index;
    if (!std::equal(e.index.terms, e.index.terms + e.index.n, read->terms, read->terms + read->n))
      return false;
  }
  for (const Pulled::Output& o : p_.outputs)
    if (o.row || p_.outputs.size() % 2 != 0) return false;
  if (!read) return false;
  std::vector<Term> terms(read->terms, read->terms + read->n);
  std::ranges::sort(terms, {}, &Term::coef);
  const ir::Dims dims = g_[product_].dims;
  const std::int64_t columns = dims.back(), rows = dims[dims.size() - 2];
  std::int64_t next = 1;
  bool has_partners = false, has_columns = false, has_rows = false;
  const auto pass = [&] {
    if (next == partner_) {
      next *= 2;
      has_partners = true;
    }
    has_columns |= next == columns;
    has_rows |= next == columns * rows;
  };
  pass();
  for (const Term& t : terms) {
    if (t.atom >= p_.space.axis_count() || t.coef != next) return false;
    next *= p_.domain[t.atom];
    pass();
  }
  return has_partners && has_columns && has_rows && next == g_[product_].numel;
}

/// Groups of the product's batch, rows and columns.
void RegionLowering::collapse_partners() {
  const auto sums = std::ranges::find(p_.entries, Entry::Kind::Product, &Entry::kind);
  const ir::Dims dims = g_[product_].dims;
  const std::int64_t columns = dims.back(), matrix = columns * dims[dims.size() - 2];
  std::vector<int> axes;
  for (int a = 0; a < p_.domain.rank(); ++a)
    if (p_.domain[a] != 1) axes.push_back(a);
  std::ranges::sort(axes, std::ranges::greater(), [&](int a) { return sums->index.coef(a); });
  for (const int a : axes) {
    const std::int64_t step = sums->index.coef(a);
    const auto number = static_cast<int>(groups_.size());
    (step >= matrix ? batch_groups_ : step >= columns ? row_groups_ : column_groups_).push_back(number);
    groups_.push_back({std::uint64_t{1} << a, a, p_.domain[a], false, {}});
  }
}

bool meets_partners(const plan::Graph& graph, const plan::Regions& regions, const plan::Region& region,
                    const schedule::Target& target) {
  constexpr std::array kDistances{32, 64};  // within a tile of 128 columns, and between lanes' runs of 8
  if (std::ranges::find(kDistances, region.partner) == kDistances.end()) return false;
  RegionLowering lowering(graph, regions, region, target);
  if (!lowering.reads_partners()) return false;
  return lowering.run().kernel.main_loop->name == "product_wgmma";
}

bool shares_halves(const plan::Graph& graph, const plan::Regions& regions, const plan::Region& region) {
  const auto loads = [](const Pulled& p, double guarded) {
    double count = 0;
    for (const Entry& e : p.entries)
      if (e.kind == Entry::Kind::Load) count += e.predicates < 0 ? 1 : guarded;
    return count;
  };
  plan::Region apart = region;
  apart.partner = 0;
  return loads(pull(graph, regions, region), 1) < 2 * loads(pull(graph, regions, apart), 0.5);
}

}  // namespace kiln::lower
