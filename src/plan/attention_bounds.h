// bounds_of: between which values a term stays over a tile of pairs, with the scalars of one run. From it
// follows which tiles a mask leaves out. A bound may be too wide, never too narrow.
#pragma once

#include "plan/pair_terms.h"

#include <functional>
#include <span>
#include <vector>

namespace kiln::plan {

struct Tile {
  std::int64_t row0, rows, column0, columns;  // rows and columns: at least 1
  std::int64_t number;                        // of the matrix in the batch
};

struct Bounds {
  double low, high;
  bool nan;  // whether it may be NaN
};

/// Scores, values of rows and memory may be anything. `slots`: bits of the graph's scalars.
Bounds bounds_of(const PairTerms& terms, TermId term, const Tile& tile, const std::vector<DType>& slot_types,
                 std::span<const std::uint64_t> slots);
/// Of every term, by its number. `known` says what is known of scores, values of rows and memory.
std::vector<Bounds> all_bounds(const PairTerms& terms, const Tile& tile, const std::vector<DType>& slot_types,
                               std::span<const std::uint64_t> slots,
                               const std::function<Bounds(const Term&)>& known);

}  // namespace kiln::plan
