// What a launch tells the main loop of a matrix product: the first member of Args. Mirrored by
// lower::ProductHead.
#pragma once

/// D[b, m, n] = sum over k of A[b, m, k] * B[b, n, k]: extents, and strides in elements of one matrix of the
/// batch.
struct Product {
  int m, n, k, batch;
  int64 a_m, a_k, b_n, b_k;
};
