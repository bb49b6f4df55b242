// KILN_DEBUG=2: one line per kernel.
#pragma once

#include "runtime/plan.h"

namespace kiln::runtime {

/// `from`: where the code that ran came from.
void log_launch(const Launch& launch, Verdict from, double seconds);
/// A library call other than a matrix product, over an operand of these extents.
void log_library(std::string_view what, DType dtype, std::span<const std::int64_t> dims, double seconds);
void log_matmul(const Matmul& matmul, double seconds);

}  // namespace kiln::runtime
