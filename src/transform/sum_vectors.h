// sum_vectors: products of a matrix and a vector as reductions, which maps of the matrix may precede.
#pragma once

#include "transform/replacement.h"

namespace kiln::transform {

/// A product of floats with one row or one column reads its matrix once, whatever computes it. As a reduction
/// it does so in the matrix's own type: a half is widened in registers, and what a map makes of memory for it
/// alone, such as weights of 8 bits times their scales, is not stored. A matrix of wider floats that is in
/// memory stays with the library, and so do batches of matrices, the products of an attention among them.
/// The sum is taken along the axis, first or last, that leaves the matrix as it lies in memory.
/// Pre: verify(graph). Post: verify(graph).
Renumbering sum_vectors(ir::Graph& graph);

}  // namespace kiln::transform
