// pad_products: products of halves whose rows do not begin at units of memory read copies whose rows do.
#pragma once

#include "transform/nouns.h"
#include "transform/replacement.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace kiln::transform {

/// What is worth it for a target.
struct PadCosts {
  std::int64_t unit = 8;  // elements whose multiples rows begin at, so that a library loads them by vectors
  double slow_per_ns = 0, fast_per_ns = 0;  // additions and multiplications without and with such rows
  double launch_ns = 0;
  std::function<double(double bytes)> moved_ns;
  std::function<std::vector<bool>(const Graph&)> by_others;  // products that no library makes, by node
};

/// x · y of halves whose rows in memory begin anywhere, because the columns or the terms are no multiple of a
/// unit or an operand lies so, becomes a part of the product of copies, with zeros behind their rows, where
/// making these takes less time than what a library loses: it is five times as slow then where tensor cores
/// decide. The result is shown as a slice of the padded one. What zeros add is 0: a sum of -0 alone may
/// become +0. Not for the strict mode. Pre: verify(graph). Post: verify(graph).
Renumbering pad_products(Graph& graph, const PadCosts& costs);

}  // namespace kiln::transform
