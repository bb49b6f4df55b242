// Writing at indices on the CPU, for every dtype and any strides.
//
// Lines along the axis do not meet: threads share out lines, and where these are few also ranges of the axis,
// in which case each reads all indices. So every element meets its values in row-major order, whatever the
// number of threads. The exception are floats that are added to few elements: parts of the values, as many as
// sizes alone decide, have sums of their own, which are added in order (not in the strict and the
// deterministic mode).
#pragma once

#include "library/library.h"

namespace kiln::cpu {

std::size_t scatter_workspace_bytes(const library::Scatter& call);
void scatter(const library::Scatter& call, std::byte* workspace);
/// What scatter() could do otherwise, with the same results.
library::Variants scatter_choices(library::Scatter call);
/// Whether scatter() reads each index once, in row-major order, and nothing else at its place.
bool scatter_counts_in_order(const library::Scatter& call);

}  // namespace kiln::cpu
