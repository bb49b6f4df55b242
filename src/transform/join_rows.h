// join_rows: a reduction down columns of narrow elements, whose rows begin at odd places of memory, becomes
// one down rows that are several of them side by side, which memory gives by whole vectors, and one of its
// few results. Rows that are left over join the latter.
#pragma once

#include "transform/replacement.h"

#include <cstdint>

namespace kiln::transform {

/// What decides how many rows are joined.
struct JoinedRowCosts {
  std::int64_t access_bytes = 16;  // of the widest access
  std::int64_t word_bytes = 4;     // of the narrowest that uses its bandwidth
  double launch_bytes = 0;         // read in the time of one more kernel
  std::int64_t held = 1792;  // elements of a column that a kernel keeps while it reads them several times
};

/// Values change in the last bits: sums are added up in another order. Not for the strict mode.
Renumbering join_rows(ir::Graph& graph, const JoinedRowCosts& costs);

}  // namespace kiln::transform
