// Rows that are divided, as one long row.
//
// Of (8, 8) elements, two by two of which read the same one of (8, 4), two by two of 64 read the same one of
// 32: the rest of a division by 2 goes on from row to row, since 2 divides 8. So does the gradient of a
// pooling: its columns are those of two arrays in turn.
#pragma once

#include "lower/region_parts.h"

namespace kiln::lower {

/// Whether all that a region reads and writes is the same at one step along the axis `outer` as behind all of
/// `inner`, quotients and rests among the indices: loops over both are one. Indices of the longer axis are
/// the same without terms of `outer`, and no dividend is negative.
bool quotients_join(const plan::Graph& g, const Pulled& p, int outer, const Group& inner);

}  // namespace kiln::lower
