// KILN_LOG=kernel, KILN_DEBUG=2: one line per kernel.
#pragma once

#include "engine/plan.h"

#include <span>

namespace kiln::engine {

/// What ran as one launch. `from`: where the code came from.
void log_launch(std::span<const Launch> launches, Verdict from, double seconds);
/// A library call other than a matrix product, over an operand of these extents.
void log_library(std::string_view what, DType dtype, std::span<const std::int64_t> dims, double seconds);
void log_matmul(const Matmul& matmul, double seconds);

}  // namespace kiln::engine
