// Tiles of rows sorted by a bitonic network in shared memory, then (sort_merge.cuh) runs of a row merged by
// twos. Of every run only what can be among the first `kept` of the row goes on. After sort.cuh; the text
// before gives kTile too, a power of two.
#pragma once

/// Items of a run: of `span` elements, or what is left of the row.
__device__ __forceinline__ int64 run_length(const Rows& rows, int64 run, int64 span) {
  const int64 left = rows.length - run * span, covered = left < 0 ? 0 : left < span ? left : span;
  return covered < rows.kept ? covered : rows.kept;
}

/// Several rows of at most `padded` elements a block, or a tile of kTile; padded is a power of two up to
/// kTile. A run begins every `distance` items of `runs`; null: to `out`.
extern "C" __global__ void __launch_bounds__(256)
    sort_tiles(Item* runs, Out* out, const Bits* in, Rows rows, int64 tiles, int log_padded, int64 distance) {
  __shared__ Item items[kTile];
  const int padded = 1 << log_padded, together = kTile >> log_padded;
  const int64 units = rows.count * tiles;
  for (int64 first = (int64)blockIdx.x * together; first < units; first += (int64)gridDim.x * together) {
#pragma unroll 1
    for (int i = threadIdx.x; i < kTile; i += blockDim.x) {
      const int64 unit = first + (i >> log_padded), row = tiles == 1 ? unit : index_div(unit, tiles);
      const int64 position = (unit - row * tiles) * kTile + (i & (padded - 1));
      Item item = Order::last();
      if (unit < units && position < rows.length)
        item = Order::make(key_at(begin_in(in, rows, row), rows, position), position);
      items[i] = item;
    }
    __syncthreads();
    for (int size = 2; size <= padded; size *= 2)
      for (int apart = size / 2; apart > 0; apart /= 2) {
        for (int t = threadIdx.x; t < kTile / 2; t += blockDim.x) {
          const int i = 2 * t - (t & (apart - 1));
          const bool up = (i & size & (padded - 1)) == 0;
          const Item a = items[i], b = items[i + apart];
          if ((b < a) == up) {
            items[i] = b;
            items[i + apart] = a;
          }
        }
        __syncthreads();
      }
#pragma unroll 1
    for (int i = threadIdx.x; i < kTile; i += blockDim.x) {
      const int64 unit = first + (i >> log_padded), row = tiles == 1 ? unit : index_div(unit, tiles);
      const int64 at = i & (padded - 1);
      if (unit >= units || at >= run_length(rows, unit - row * tiles, kTile)) continue;
      if (runs)
        runs[unit * distance + at] = items[i];
      else
        put(begin_out(out, rows, row), rows, at, items[i]);
    }
    __syncthreads();
  }
}
