// pull_predicates: which predicates of its surroundings a load needs.
#pragma once

#include "lower/pull.h"

namespace kiln::lower {

/// A chain without the gathers before all other links whose index the coordinates of a load do not have: what
/// is read there is in memory wherever that index leads. One load then serves several gathers.
std::int32_t needed_predicates(const Pulled& pulled, std::int32_t chain, const Coords& coords);

}  // namespace kiln::lower
