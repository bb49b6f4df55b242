// keep_numbers: the same number for every index of a scatter (a histogram adds ones) is one element in memory
// that all of them read, not an array of as many as there are indices.
//
// Values are kept to the bit.
#pragma once

#include "transform/replacement.h"

namespace kiln::transform {

Renumbering keep_numbers(ir::Graph& graph);

}  // namespace kiln::transform
