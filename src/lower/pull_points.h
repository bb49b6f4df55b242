// pull_points: the points that pull walks, by their positions and by their coordinates in tensors of any
// extents. Equal coordinates have one number.
#pragma once

#include "lower/domain.h"
#include "lower/pull.h"

#include <span>
#include <unordered_map>
#include <vector>

namespace kiln::lower {

using CoordsId = std::uint32_t;

class Points {
 public:
  /// Gives `pulled` its domain, places and positions. A point of the domain that stands for two is the first
  /// one.
  Points(Pulled& pulled, Domain domain);
  Points(const Points&) = delete;

  /// Whether a point of the domain stands for two (Domain::half), and which of them the current point is.
  bool has_halves() const { return half_elements_ > 0; }
  void take(int half);

  const Coords& operator[](CoordsId id) const { return coords_[id]; }
  CoordsId intern(Coords&& coords);
  /// Coordinates, in a tensor of these extents, of the current point (or row) of the domain.
  CoordsId base(std::span<const std::int64_t> dims, int level);
  /// Right-aligned broadcasting: coordinates of the operand that the point `at` of a tensor of `dims` reads.
  CoordsId operand(CoordsId at, std::span<const std::int64_t> dims, std::span<const std::int64_t> operand);
  int levels() const { return static_cast<int>(counts_.size()); }
  std::int64_t count(int level) const { return counts_[static_cast<std::size_t>(level)]; }

 private:
  struct Base {
    Shape dims;
    int level;
    CoordsId id;
  };

  Pulled& p_;
  const int half_axis_;  // see Domain
  const std::int64_t half_elements_;
  std::vector<Coords> coords_;
  std::unordered_multimap<std::uint64_t, CoordsId> by_hash_;
  std::vector<Base> base_;
  Coords point_;                      // the current point of the domain
  std::vector<std::int64_t> counts_;  // of points, of each level
};

}  // namespace kiln::lower
