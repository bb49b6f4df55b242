// From the sums that tensor cores leave in a warp's lanes to calls of the generated epilogue. mma.sync and
// wgmma alike give a lane pairs of adjacent columns; an epilogue of width 8 gets eight adjacent columns, so
// that its loads and stores are 16 bytes wide, after lanes of a row have exchanged theirs. Must not touch
// shared memory.
//
// Where the epilogue reads columns n and n + kPartner together (Config::kPartner, of n mod 2 kPartner <
// kPartner; 0: it does not), both are of one lane: it gets their sums as those of two products, and is called
// for the first columns alone.
//
// Where it loads and stores columns by whole vectors alone (Config::kSpread, of whole tiles), lanes keep
// their sums, and what they store is exchanged, which is less: see store_spread.
#pragma once

/// The epilogue of `Pairs` pairs of a row of a part: this lane has columns n + 8 j + 2 q and + 1, where
/// `sum(p, j, e)` is that of product p. All lanes of a warp call this at one time, those whose row m is not
/// there too. `columns`: those of the part. Whole: all rows and columns are there, so that nothing branches
/// between one call's loads and the next call's: they wait at one time.
template <int Pairs, bool Whole = false, int kWidth = Config::kWidth, class Sum>
__device__ __forceinline__ void finish_row(const Args& args, int part, int b, int m, int n, int columns,
                                           const Sum& sum) {
  constexpr bool kSpread = Whole && Config::kSpread;
  constexpr int kPartner = Config::kPartner, kSums = kPartner > 0 ? 2 : Config::kProducts;
  static_assert(kWidth == 2 || kWidth == 8, "");
  static_assert(
      kPartner == 0 || (Config::kProducts == 1 && kPartner % 32 == 0 && Pairs % (kPartner / 4) == 0), "");
  // of sums p for columns from pair j on: the product, and its pair
  const auto sums_at = [&](int p, int j, int e) {
    return kPartner > 0 ? sum(0, j + p * (kPartner / 8), e) : sum(p, j, e);
  };
  const Product& product = args.product;
  const int q = threadIdx.x & 3;
  if constexpr (kWidth == 2) {
#pragma unroll
    for (int j = 0; j < Pairs; ++j) {
      if (kPartner > 0 && (j & kPartner / 8)) continue;
      const int at = n + 8 * j + 2 * q, left = columns - at;
      float x[kSums][kWidth];
#pragma unroll
      for (int p = 0; p < kSums; ++p)
#pragma unroll
        for (int e = 0; e < 2; ++e) x[p][e] = sums_at(p, j, e);
      if (Whole || (m < product.m && left > 0))
        epilogue(args, part, b, m, at, Whole || left > 2 ? 2 : left, x);
    }
  } else {
    static_assert(Pairs % 4 == 0, "");
#pragma unroll
    for (int block = 0; block < Pairs / 4; ++block) {
      if (kPartner > 0 && (block & kPartner / 32)) continue;
      float x[kSums][kWidth];
#pragma unroll
      for (int p = 0; p < kSums; ++p) {
        float y[4][2];
#pragma unroll
        for (int e = 0; e < 8; ++e) y[e / 2][e % 2] = sums_at(p, 4 * block + e / 2, e % 2);
        if constexpr (!kSpread) gather_columns(y);
#pragma unroll
        for (int e = 0; e < 8; ++e) x[p][e] = y[e / 2][e % 2];
      }
      const int at = n + 32 * block + (kSpread ? 0 : 8 * q), left = columns - at;
      if (Whole || (m < product.m && left > 0))
        epilogue(args, part, b, m, at, Whole || left > 8 ? 8 : left, x);
    }
  }
}
