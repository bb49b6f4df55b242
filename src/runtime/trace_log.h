// KILN_DEBUG=2: one line per kernel.
#pragma once

#include "runtime/plan.h"

namespace kiln::runtime {

void log_launch(const Launch& launch, double seconds);
void log_matmul(const Matmul& matmul, double seconds);

}  // namespace kiln::runtime
