// bits_of_floats: 8-bit floats as the bytes that they are.
#pragma once

#include "transform/replacement.h"

namespace kiln::transform {

/// Whether a value of the graph is an 8-bit float.
bool has_stored_floats(const ir::Graph& graph);

/// Values of dtypes that are only stored become uint8, and conversions from and to them operations on bits,
/// so that nobody behind knows these dtypes: not the planner, the lowering, the emitters or the libraries.
Renumbering bits_of_floats(ir::Graph& graph);

}  // namespace kiln::transform
