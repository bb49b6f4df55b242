// KILN_DEBUG=2: one line per kernel.
#pragma once

#include "runtime/plan.h"

namespace kiln::runtime {

/// `from`: where the code that ran came from.
void log_launch(const Launch& launch, Verdict from, double seconds);
void log_matmul(const Matmul& matmul, double seconds);

}  // namespace kiln::runtime
