// KILN_LOG=kernel, KILN_DEBUG=2: one line per kernel.
#pragma once

#include "engine/plan.h"

#include <span>

namespace kiln::engine {

/// What ran as one launch. `from`: where the code came from.
void log_launch(std::span<const Launch> launches, Verdict from, double seconds);
void log_library(const LibraryCall& call, double seconds);

}  // namespace kiln::engine
