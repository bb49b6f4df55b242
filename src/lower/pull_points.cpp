#include "lower/pull_points.h"

#include <algorithm>
#include <utility>

namespace kiln::lower {

Points::Points(Pulled& pulled, Domain domain)
    : p_(pulled), half_axis_(domain.half_axis), half_elements_(domain.half) {
  p_.domain = domain.axes;
  p_.reduced = domain.reduced;
  p_.places = std::move(domain.places);
  IndexSpace& space = p_.space;
  int last = p_.domain.rank() - 1;
  while (last > 0 && p_.domain[last] == 1) --last;
  // Rows that are walked from their ends go from the last to the first: memory is walked one way.
  const std::uint64_t from_end = !domain.backwards          ? 0
                                 : (p_.reduced >> last) & 1 ? ~std::uint64_t{0}
                                                            : p_.reduced;
  for (int a = 0; a < p_.domain.rank(); ++a) {
    point_.push_back((from_end >> a) & 1 ? space.add(space.mul(space.axis(a), -1), p_.domain[a] - 1)
                                         : space.axis(a));
  }
  take(0);
}

/// Row-major positions of the current point among the points of each level.
void Points::take(int half) {
  p_.linear.clear();
  counts_.clear();
  base_.clear();
  for (const std::uint64_t place : p_.places) {
    Coords at;
    Shape dims;
    for (int a = 0; a <= p_.domain.rank(); ++a) {
      if (has_halves() && a == half_axis_) {
        at.push_back(p_.space.constant(half));
        dims.push_back(2);
      }
      if (a == p_.domain.rank() || !((place >> a) & 1)) continue;
      at.push_back(point_[static_cast<std::size_t>(a)]);
      dims.push_back(p_.domain[a]);
    }
    p_.linear.push_back(p_.space.linearize(at, dims));
    counts_.push_back(dims.numel());
  }
}

CoordsId Points::intern(Coords&& coords) {
  std::uint64_t h = coords.size();
  for (const Index& i : coords) {
    h = (h ^ static_cast<std::uint64_t>(i.c)) * 0x9e3779b97f4a7c15u;
    for (int t = 0; t < i.n; ++t)
      h = (h ^ static_cast<std::uint64_t>(i.terms[t].coef * 31 + i.terms[t].atom)) * 0x9e3779b97f4a7c15u;
    h ^= h >> 29;
  }
  auto [it, end] = by_hash_.equal_range(h);
  for (; it != end; ++it)
    if (coords_[it->second] == coords) return it->second;
  const CoordsId id = static_cast<CoordsId>(coords_.size());
  coords_.push_back(std::move(coords));
  by_hash_.emplace(h, id);
  return id;
}

CoordsId Points::base(std::span<const std::int64_t> dims, int level) {
  for (const Base& b : base_)
    if (b.level == level && std::equal(b.dims.begin(), b.dims.end(), dims.begin(), dims.end())) return b.id;
  Coords c;
  const bool domain =
      level == 0 && !has_halves() && std::equal(dims.begin(), dims.end(), p_.domain.begin(), p_.domain.end());
  if (domain)
    c = point_;
  else
    p_.space.delinearize(p_.linear[static_cast<std::size_t>(level)], dims, c);
  const CoordsId id = intern(std::move(c));
  base_.push_back({Shape(dims), level, id});
  return id;
}

CoordsId Points::operand(CoordsId at, std::span<const std::int64_t> dims,
                         std::span<const std::int64_t> operand) {
  if (std::equal(dims.begin(), dims.end(), operand.begin(), operand.end())) return at;
  Coords c(operand.size());
  if (operand.size() > dims.size()) return intern(std::move(c));  // one element
  const std::size_t skip = dims.size() - operand.size();
  for (std::size_t a = 0; a < operand.size(); ++a)
    if (operand[a] != 1) c[a] = coords_[at][a + skip];
  return intern(std::move(c));
}

}  // namespace kiln::lower
