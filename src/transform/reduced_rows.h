// ReducedRows: what a reduction asks of a kernel that would read its operand again.
#pragma once

#include "transform/nouns.h"

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

/// Those of x over some axes, with so many results.
ReducedRows reduced_rows(const Graph& graph, NodeId x, std::uint64_t axes, std::int64_t results);

/// Whether a kernel keeps rows, or columns, on chip while it reads them several times; of one with a
/// reduction that is asked about.
using KeepsRows = std::function<bool(const ReducedRows&, NodeId)>;

}  // namespace kiln::transform
