// tile_call: what a library gets of a step whose library calls kernels for tiles.
#pragma once

#include "engine/plan.h"

#include <cstddef>
#include <functional>

namespace kiln::engine {

using AddressOf = std::function<std::byte*(const Place&)>;

/// Without the values of the run's scalars.
library::AttentionCall tile_call(const AttentionStep& step, const AddressOf& address);
library::PairSumsCall tile_call(const PairSumsStep& step, const AddressOf& address);

}  // namespace kiln::engine
