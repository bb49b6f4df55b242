// KILN_LOG=kernel, KILN_DEBUG=2: one line per kernel.
#pragma once

#include "engine/plan.h"

#include <span>

namespace kiln::engine {

/// What ran as one launch. `from`: where the code came from. `copy_gbps`: the device's.
void log_launch(std::span<const Launch> launches, Verdict from, double seconds, double copy_gbps);
void log_attention(const AttentionStep& step, double seconds);
void log_pair_sums(const PairSumsStep& step, double seconds);
void log_library(const LibraryCall& call, double seconds);

}  // namespace kiln::engine
