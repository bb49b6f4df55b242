// sum_vectors: products of a matrix and one or two vectors as reductions, which maps of the matrix may
// precede.
#pragma once

#include "transform/replacement.h"

#include <cstdint>

namespace kiln::transform {

/// What is worth it for a target.
struct VectorCosts {
  bool apart = false;  // a GPU's: each vector's sums are a reduction, in one kernel; see there
  std::int64_t most_terms = 0, most_across = 0;  // apart: of a sum, along memory or across it, …
  std::int64_t most_of_two = 0;                  // … of two vectors, …
  std::int64_t least_sums = 0;                   // … and sums of a vector
};

/// A product of floats with one or two rows or columns takes the time of reading its matrix, whatever
/// computes it. As a reduction it reads that in the matrix's own type: a half is widened in registers, and
/// what a map makes of memory for it alone, such as weights of 8 bits times their scales, is not stored. A
/// matrix of wider floats that is in memory stays with the library, as do halves along whose adjacent
/// elements two sums go, and batches of matrices, the products of an attention among them. The sum is taken
/// along the axis, first or last, that leaves the matrix as it lies in memory. Pre: verify(graph). Post:
/// verify(graph).
Renumbering sum_vectors(ir::Graph& graph, const VectorCosts& costs = {});

}  // namespace kiln::transform
