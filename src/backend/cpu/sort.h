// Sorting and searching on the CPU, for every dtype and any strides.
//
// Elements become unsigned keys of the same order (NaN greatest), complemented for descending order: one comparison and
// one radix sort then serve all dtypes. Positions ride along below their keys, so that every order is a strict one and
// results do not depend on the number of threads.
#pragma once

#include "backend/library.h"

namespace kiln::cpu {

std::size_t sort_workspace_bytes(const backend::Sort& call);
void sort(const backend::Sort& call, std::byte* workspace);
void search(const backend::Search& call);

}  // namespace kiln::cpu
