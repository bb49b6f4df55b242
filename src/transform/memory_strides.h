// memory_strides: how far apart the elements of a value lie in the memory that it is read from.
#pragma once

#include "ir/graph.h"

#include <cstdint>
#include <vector>

namespace kiln::transform {

/// For each axis, elements between neighbours along it, through views, casts and maps down to memory: of a
/// map, those of an operand with as many elements. What is computed otherwise, or shown by a view that cuts
/// axes of strided memory, would be row-major memory of its own.
std::vector<std::int64_t> memory_strides(const ir::Graph& graph, ir::NodeId id);

}  // namespace kiln::transform
