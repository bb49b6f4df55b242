// pull_predicates: the predicates of pads and joins, and which of its surroundings a load needs.
#pragma once

#include "lower/pull.h"

namespace kiln::lower {

/// A chain without the gathers before all other links whose index the coordinates of a load do not have: what
/// is read there is in memory wherever that index leads. One load then serves several gathers.
std::int32_t needed_predicates(const Pulled& pulled, std::int32_t chain, const Coords& coords);

/// Whether 0 <= t < extent * step and t is a multiple of step. Where all terms of t have a common factor it
/// is said of t over that: a guard of lanes that lie apart then changes from one lane to the next.
Predicate predicate_of(Index t, std::int64_t extent, std::int64_t step = 1);

}  // namespace kiln::lower
