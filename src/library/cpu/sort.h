// Sorting and searching on the CPU, for every dtype and any strides.
//
// Elements become unsigned keys of the same order (NaN greatest), complemented for descending order: one
// comparison and one radix sort then serve all dtypes. Positions ride along below their keys, so that every
// order is a strict one and results do not depend on the number of threads.
#pragma once

#include "library/library.h"

namespace kiln::cpu {

std::size_t sort_workspace_bytes(const library::Sort& call);
void sort(const library::Sort& call, std::byte* workspace);
/// What sort() could do otherwise, with the same results.
library::Variants sort_choices(library::Sort call);
void search(const library::Search& call);

}  // namespace kiln::cpu
