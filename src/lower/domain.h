// Domain: the axes that a region's kernel walks.
#pragma once

#include "plan/region.h"

#include <kiln/shape.h>

#include <cstdint>
#include <vector>

namespace kiln::lower {

struct Domain {
  Shape axes;
  std::uint64_t reduced = 0;
  bool backwards = false;  // the reduced axes are walked from their ends
  /// Where each point stands for two (plan::Region::partner): how many elements the second one is behind the
  /// first, and where among the axes the one would stand that has these two. It is no axis of the domain.
  std::int64_t half = 0;
  int half_axis = 0;
  /// The axes of values at each level (see plan::Region), all axes first.
  std::vector<std::uint64_t> places = {};
};

/// The domain's axes: those of the reduction (or of the widest node), refined where other nodes of the region
/// show the same points in a shape that cuts between them (group norm: (N, G, C/G·H·W) against (N, C, H, W)).
Domain choose_domain(const plan::Graph& g, const plan::Region& region);

}  // namespace kiln::lower
