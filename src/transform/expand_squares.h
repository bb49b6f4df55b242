// expand_squares: the sum of squares about a mean is made of the sum and the sum of squares, which one kernel
// finds as it reads its operand once.
#pragma once

#include "transform/replacement.h"

#include <cstdint>
#include <functional>

namespace kiln::transform {

/// A reduction as a kernel sees it.
struct ReducedRows {
  std::int64_t rows = 1, length = 1;  // results, and elements that are reduced to each
  bool columns = false;               // the last axis is kept, …
  std::int64_t run = 1;               // … and so many elements of it and of those before it lie side by side
  bool mixed = false;                 // kept axes lie between reduced ones
  std::int64_t bytes = 4;             // an element has in memory
};

/// Whether a kernel keeps rows, or columns, on chip while it reads them several times; of one with a sum that
/// is asked about.
using KeepsRows = std::function<bool(const ReducedRows&, ir::NodeId)>;

/// Σ(x - m)², where m is made of Σx over the same axes, becomes Σx² - m (2 Σx - n m), all in Float64, unless
/// the rows stay on chip for the second reading. x is of Float32 or narrower: its square is exact in Float64,
/// and what cancels is far below Float32's last bit unless m is 10⁴ times the deviation and more, where
/// Float32 has no more than a few bits of x - m left. Not for the strict mode.
Renumbering expand_squares(ir::Graph& graph, const KeepsRows& keeps);

}  // namespace kiln::transform
