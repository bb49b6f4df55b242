// split_reductions: a reduction over axes that others lie between becomes one over the outer axes, then one
// of its few results over the inner ones, where that reads memory in longer runs.
#pragma once

#include "transform/replacement.h"

#include <cstdint>
#include <functional>

namespace kiln::transform {

/// What decides whether a reduction is split: rates of a target as numbers of bytes.
struct ReductionCosts {
  double run_bytes = 0;     // adjacent bytes that are read as fast as longer runs
  double launch_bytes = 0;  // read in the time of one more kernel
  std::int64_t folded = 0;  // of a kernel's lanes, which several reduced axes share where they are so short
  std::int64_t items = 1;   // kept points that keep all threads busy then
  std::int64_t turned = 0;  // elements at most of rows that are turned on the way, so that each has a lane
  std::int64_t held = 0;    // elements that a kernel keeps near while it reads them several times
  bool read_again = false;  // near, but still in memory: short runs take as long the next time
  /// Whether a kernel keeps columns of which adjacent ones have a result together: of `items` of the kept
  /// axes around them, with `rows` elements of so many bytes each.
  struct Columns {
    std::int64_t items = 1, rows = 1, columns = 1, together = 1, bytes = 4;
  };
  std::function<bool(const Columns&)> keeps_groups;
};

/// Values change in the last bits: sums are added up in another order. Not for the strict mode.
Renumbering split_reductions(ir::Graph& graph, const ReductionCosts& costs);

/// Whether it would split a reduction. Changes nothing.
bool is_split(ir::Graph& graph, ir::NodeId reduction, const ReductionCosts& costs);

}  // namespace kiln::transform
