// The oracle: evaluates a graph element by element with the reference column of ops.def, sharing no code with
// lowering or the emitters. Slow and simple on purpose.
#pragma once

#include "ir/graph.h"

#include <cstddef>
#include <vector>

namespace kiln::ir {

/// Memory of one argument: address of its first element; dtype, dims and strides are in graph.args.
struct ArgData {
  const std::byte* data;
};

/// Row-major values of the graph's roots, in order. slots: each scalar's bits in its dtype's storage format.
/// Float operations are computed in double and rounded to the node's dtype; float sums accumulate in double;
/// matmul too (integers wrap). With check_bounds an index out of range is a UserError that names it.
std::vector<std::vector<std::byte>> interpret(const Graph& graph, std::span<const ArgData> args,
                                              std::span<const std::uint64_t> slots,
                                              bool check_bounds = false);

}  // namespace kiln::ir
