// bounds_of: between which values a term of an attention stays over a tile, with the scalars of one run. From
// it follows which tiles a mask leaves out. A bound may be too wide, never too narrow.
#pragma once

#include "plan/attention.h"

#include <span>

namespace kiln::plan {

struct Tile {
  std::int64_t row0, rows, column0, columns;  // rows and columns: at least 1
  std::int64_t number;                        // of the matrix in the batch
};

struct Bounds {
  double low, high;
  bool nan;  // whether it may be NaN
};

/// Scores and memory may be anything. `slots`: bits of the graph's scalars.
Bounds bounds_of(const Attention& a, TermId term, const Tile& tile, const std::vector<DType>& slot_types,
                 std::span<const std::uint64_t> slots);

}  // namespace kiln::plan
