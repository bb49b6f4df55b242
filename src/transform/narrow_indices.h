// narrow_indices: indices of a scatter that are computed first are written in as few bytes as its axis needs.
#pragma once

#include "transform/replacement.h"

namespace kiln::transform {

/// For devices whose scatters read computed indices from memory. Post: every index chooses the place that it
/// chose before, or none.
Renumbering narrow_indices(ir::Graph& graph);

}  // namespace kiln::transform
