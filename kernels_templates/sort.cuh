// Sorting rows: tiles by a bitonic network in shared memory, then (sort_merge.cuh) runs of a row merged by twos. Of every run
// only what can be among the first `kept` of the row goes on. The text before gives Element, KILN_ORDER (one of the three
// below) and kTile, a power of two.
//
// Items of a row are all different, or alike in everything: every order of comparisons gives the same result.
#pragma once

typedef element<Element>::bits Bits;
struct Wide {
  uint64 key, position;
};
__device__ __forceinline__ bool operator<(const Wide& a, const Wide& b) {
  return a.key < b.key || (a.key == b.key && a.position < b.position);
}

// What items are, how they are made, and what is stored of them.

struct KeyAlone {
  typedef Bits Item;
  typedef Bits Out;
  static const bool merge_zeros = false;
  static __device__ __forceinline__ Item make(Bits key, int64) { return key; }
  static __device__ __forceinline__ Item last() { return Item(~Item(0)); }
  static __device__ __forceinline__ Out out(Item item, bool descending) {
    return bits_of_key<Element>(descending ? Bits(~item) : item);
  }
};
/// For keys of up to 32 bits and rows of less than 2^32 elements.
struct KeyAbovePosition {
  static const bool merge_zeros = true;
  typedef uint64 Item;
  typedef int64 Out;
  static __device__ __forceinline__ Item make(Bits key, int64 position) { return uint64(key) << 32 | uint64(position); }
  static __device__ __forceinline__ Item last() { return ~0ull; }
  static __device__ __forceinline__ Out out(Item item, bool) { return int64(item & 0xffffffffull); }
};
struct KeyBesidePosition {
  static const bool merge_zeros = true;
  typedef Wide Item;
  typedef int64 Out;
  static __device__ __forceinline__ Item make(Bits key, int64 position) { return {uint64(key), uint64(position)}; }
  static __device__ __forceinline__ Item last() { return {~0ull, ~0ull}; }
  static __device__ __forceinline__ Out out(const Item& item, bool) { return int64(item.position); }
};
typedef KILN_ORDER Order;
typedef Order::Item Item;
typedef Order::Out Out;

struct Rows {
  Axes axes;      // of the input but the sorted one
  int64 count, length, stride, kept;
  int64 inner;    // elements behind the sorted axis: the distance of a row's results
  int descending;
};

__device__ __forceinline__ void put(Out* out, const Rows& rows, int64 row, int64 i, const Item& item) {
  const int64 outer = index_div(row, rows.inner);
  out[(outer * rows.kept + i) * rows.inner + row - outer * rows.inner] = Order::out(item, rows.descending);
}

/// Items of a run: of `span` elements, or what is left of the row.
__device__ __forceinline__ int64 run_length(const Rows& rows, int64 run, int64 span) {
  const int64 left = rows.length - run * span, covered = left < 0 ? 0 : left < span ? left : span;
  return covered < rows.kept ? covered : rows.kept;
}

/// Several rows of at most `padded` elements a block, or a tile of kTile; padded is a power of two up to kTile. A run
/// begins every `distance` items of `runs`; null: to `out`.
extern "C" __global__ void __launch_bounds__(256) sort_tiles(Item* runs, Out* out, const Bits* in, Rows rows, int64 tiles,
                                                             int log_padded, int64 distance) {
  __shared__ Item items[kTile];
  const int padded = 1 << log_padded, together = kTile >> log_padded;
  const int64 units = rows.count * tiles;
  for (int64 first = (int64)blockIdx.x * together; first < units; first += (int64)gridDim.x * together) {
#pragma unroll 1
    for (int i = threadIdx.x; i < kTile; i += blockDim.x) {
      const int64 unit = first + (i >> log_padded), row = tiles == 1 ? unit : index_div(unit, tiles);
      const int64 position = (unit - row * tiles) * kTile + (i & (padded - 1));
      Item item = Order::last();
      if (unit < units && position < rows.length) {
        const Bits key = key_of<Element>(in[offset_of(rows.axes, row) + position * rows.stride], Order::merge_zeros);
        item = Order::make(rows.descending ? Bits(~key) : key, position);
      }
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
      if (runs) runs[unit * distance + at] = items[i];
      else put(out, rows, row, at, items[i]);
    }
    __syncthreads();
  }
}
