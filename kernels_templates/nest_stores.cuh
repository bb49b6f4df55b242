// Nests over pairs whose values of pairs are stored: r[i, j] (nest_tiles.cuh), or what is made of it.
//
// Config, beside that of tiles: kStore, adjacent columns that are stored at a time, 1 or what a thread has.
//
//   void store_pairs(args, i, j, given)      given: kStore values of r, of j and the columns behind it
#pragma once

struct NestRows {
  __device__ __forceinline__ void begin() {}
  __device__ __forceinline__ void take(const Args& args, const Real (&r)[kEachM][kEachN], const NestPlace& at,
                                       int column) {
    constexpr int kStore = Config::kStore;
    static_assert(kStore == 1 || (kByWords && kStore == kWords), "");
#pragma unroll
    for (int m = 0; m < kEachM; ++m) {
      const int i = at.row_at(m);
#pragma unroll
      for (int n = 0; n < kEachN; n += kStore) {
        const int j = column + place_in_tile<kEachN, Config::kColumns, kByWords>(at.column, n);
        Real given[1][kStore];
#pragma unroll
        for (int q = 0; q < kStore; ++q) given[0][q] = r[m][n + q];
        if (i < args.shape.rows && j < args.shape.columns) store_pairs(args, i, j, given);
      }
    }
  }
  __device__ __forceinline__ void end(const Args&, const NestPlace&) {}
};
