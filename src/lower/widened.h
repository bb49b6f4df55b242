// widened: reductions of Float32 whose value is Float64 (ir::infer): the logarithm of a sum of exponentials,
// whose last bits would be lost in a great logarithm. What is kept of the elements is Float32 nevertheless.
#pragma once

#include "ir/graph.h"
#include "kernel/kernel.h"
#include "lower/pull.h"

#include <functional>
#include <vector>

namespace kiln::lower {

bool widens(const ir::Graph& graph, const ir::GraphNode& reduction);

/// The accumulator that `make` makes of Float32, with values in Float64.
kernel::AccDecl widened(kernel::Kernel& kernel, const std::function<kernel::AccDecl()>& make);

/// By entry: whether it is a reduction's value, or made of such alone.
std::vector<bool> made_of_rows(const Pulled& pulled);

}  // namespace kiln::lower
