// turn_windows: a product of windows whose channels lie far apart, as in (images, channels, y, x), reads an
// array that is stored once more with its channels last. Main loops copy the channels of an element side by
// side (window_view.h); the array is read and written once, where its windows would be as often as they have
// elements.
#pragma once

#include "schedule/target.h"
#include "transform/replacement.h"

namespace kiln::plan {

/// Both operands sum over channels last, then: the order of a product's terms changes.
transform::Renumbering turn_windows(ir::Graph& graph, const schedule::Target& target);

}  // namespace kiln::plan
