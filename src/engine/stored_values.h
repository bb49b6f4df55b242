// Which held values an evaluation stores besides what it was asked for, so that a value which a later
// evaluation needs again is not computed again from ever further back.
#pragma once

#include "engine/walk.h"

namespace kiln::engine {

/// Fills walk.stored. `passed`: whether the walk met a node that an earlier evaluation computed and did not
/// store. Such a node is recomputed now; so that this is the last time, every held node that is one or
/// descends from one is stored, and its line is learned. Held nodes of learned lines are stored in any case.
/// Where other values have joined the roots, the lines are doubted: what joined may have been their reader.
/// Caller holds the walk's guard.
void choose_stored(Walk& walk, bool passed);

}  // namespace kiln::engine
