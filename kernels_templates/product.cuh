// What every product template and the text generated for it share: D[b, m, n] = Σₖ A[b, m, k] · B[b, n, k],
// then the epilogue that Kiln generates. A unit is this text; then, generated, struct Config (types, tile
// class, alignments), struct Args and the hooks (docs/cuda.md lists them); then product_rows.cuh and the main
// loop. Must not know of any of them.
#pragma once

/// Extents, and strides in elements of one matrix of the batch. Mirrored by codegen/cuda/product_launch.h.
struct Product {
  int m, n, k, batch;
  int64 a_m, a_k, b_n, b_k;
};

__device__ __forceinline__ int tiles_of(int extent, int tile) {
  return int((int64(extent) + tile - 1) / tile);
}

struct TilePlace {
  int b, m, n;  // batch, first row, first column
};

/// The i-th tile, of fewer than 2^31. Tiles that run at one time share rows and columns: groups of `Group`
/// tiles along m are walked side by side, so that what the second cache holds is read by many.
template <int Group>
__device__ __forceinline__ TilePlace place_of_tile(int i, int m_tiles, int n_tiles, int tile_m, int tile_n) {
  const int each = m_tiles * n_tiles;
  TilePlace place;
  place.b = i / each;
  const int rest = i - place.b * each, first = rest / (Group * n_tiles) * Group;
  const int in_group = rest - first * n_tiles;
  const int rows = m_tiles - first < Group ? m_tiles - first : Group;
  const int column = in_group / rows;
  place.m = (first + in_group - column * rows) * tile_m;
  place.n = column * tile_n;
  return place;
}
