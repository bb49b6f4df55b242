// From the sums that tensor cores leave in a warp's lanes to calls of the generated epilogue. mma.sync and
// wgmma alike give a lane pairs of adjacent columns; an epilogue of width 8 gets eight adjacent columns, so
// that its loads and stores are 16 bytes wide, after lanes of a row have exchanged theirs. Must not touch
// shared memory.
#pragma once

/// The epilogue of `Pairs` pairs of a row of a part: this lane has columns n + 8 j + 2 q and + 1, where
/// `sum(p, j, e)` is that of product p. All lanes of a warp call this at one time, those whose row m is not
/// there too. `columns`: those of the part.
template <int Pairs, int kWidth = Config::kWidth, class Sum>
__device__ __forceinline__ void finish_row(const Args& args, int part, int b, int m, int n, int columns,
                                           const Sum& sum) {
  constexpr int kProducts = Config::kProducts;
  static_assert(kWidth == 2 || kWidth == 8, "");
  const Product& product = args.product;
  const int q = threadIdx.x & 3;
  if constexpr (kWidth == 2) {
#pragma unroll
    for (int j = 0; j < Pairs; ++j) {
      const int at = n + 8 * j + 2 * q, left = columns - at;
      float x[kProducts][kWidth];
#pragma unroll
      for (int p = 0; p < kProducts; ++p)
#pragma unroll
        for (int e = 0; e < 2; ++e) x[p][e] = sum(p, j, e);
      if (m < product.m && left > 0) epilogue(args, part, b, m, at, left < 2 ? left : 2, x);
    }
  } else {
    static_assert(Pairs % 4 == 0, "");
#pragma unroll
    for (int block = 0; block < Pairs / 4; ++block) {
      float x[kProducts][kWidth];
#pragma unroll
      for (int p = 0; p < kProducts; ++p) {
        float y[4][2];
#pragma unroll
        for (int e = 0; e < 8; ++e) y[e / 2][e % 2] = sum(p, 4 * block + e / 2, e % 2);
        gather_columns(y);
#pragma unroll
        for (int e = 0; e < 8; ++e) x[p][e] = y[e / 2][e % 2];
      }
      const int at = n + 32 * block + 8 * q, left = columns - at;
      if (m < product.m && left > 0) epilogue(args, part, b, m, at, left < 8 ? left : 8, x);
    }
  }
}
