// sum_vectors: products of a matrix and one or two vectors as reductions, which maps of the matrix may
// precede.
#pragma once

#include "transform/replacement.h"

namespace kiln::transform {

/// A product of floats with one or two rows or columns takes the time of reading its matrix, whatever
/// computes it. As a reduction it reads that in the matrix's own type: a half is widened in registers, and
/// what a map makes of memory for it alone, such as weights of 8 bits times their scales, is not stored. A
/// matrix of wider floats that is in memory stays with the library, as do halves along whose adjacent
/// elements two sums go, and batches of matrices, the products of an attention among them. The sum is taken
/// along the axis, first or last, that leaves the matrix as it lies in memory. Pre: verify(graph). Post:
/// verify(graph).
Renumbering sum_vectors(ir::Graph& graph);

}  // namespace kiln::transform
