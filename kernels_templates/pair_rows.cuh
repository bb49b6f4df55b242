// What the main loops of sums over pairs share: what becomes of products in registers. A warp holds
// kFragments fragments of 16 rows as mma.sync and wgmma leave them: lane 4 g + q has rows g and g + 8,
// columns 8 n + 2 q and + 1; value e of row g + 8 h and columns n is number 4 n + 2 h + e. What depends on a
// row alone is in registers, what depends on a column alone in shared memory, made once for each tile.
#pragma once

constexpr int kProducts = Config::kProducts, kOperands = Config::kOperands, kSums = Config::kSums,
              kReductions = Config::kReductions, kRowValues = Config::kRowValues,
              kColumnValues = Config::kColumnValues;
constexpr int kValueBytes = kColumnValues * kColumns * 4;  // of a tile, in shared memory: value by value
constexpr int kPieces = (Config::kOut + Config::kPiece - 1) / Config::kPiece,
              kPieceTiles = Config::kPiece / 8;  // tiles: of 8 columns

constexpr int depth_of(int operand) {
  return operand == 0   ? Config::kDepth0
         : operand == 1 ? Config::kDepth1
         : operand == 2 ? Config::kDepth2
                        : Config::kDepth3;
}
constexpr int operand_of(int sum) {
  return sum == 0 ? Config::kSum0 : sum == 1 ? Config::kSum1 : sum == 2 ? Config::kSum2 : Config::kSum3;
}
constexpr bool multiplies(int operand) {
  bool found = false;
  for (int m = 0; m < kSums; ++m) found = found || operand_of(m) == operand;
  return found;
}
constexpr int reduction_of(int n) {
  return n == 0   ? Config::kReduction0
         : n == 1 ? Config::kReduction1
         : n == 2 ? Config::kReduction2
                  : Config::kReduction3;
}

template <int N>
struct Number {
  static constexpr int value = N;
};
/// f of each of the numbers below N, as types.
template <int N, class F>
__device__ __forceinline__ void each(const F& f) {
  if constexpr (N > 0) {
    each<N - 1>(f);
    f(Number<N - 1>());
  }
}

/// Makes the values of the columns of a tile that begins at c0; by one warp.
__device__ __forceinline__ void store_column_values(const Args& args, int b, int c0, uint32 to) {
  if constexpr (kColumnValues > 0)
#pragma unroll
    for (int at = threadIdx.x % 32 * 2; at < kColumns; at += 64) {
      float made[kColumnValues > 0 ? kColumnValues : 1][2];
      column_values(args, b, c0 + at, made);
#pragma unroll
      for (int n = 0; n < kColumnValues; ++n) store_shared_pair(to + (n * kColumns + at) * 4, made[n]);
    }
}

typedef float Products[kProducts][kFragments][kColumns / 2];
/// Weights of 16 columns, as the first operands of products.
typedef uint32 Weights[kSums > 0 ? kSums : 1][kFragments][4];

/// A thread's part of a block's rows.
struct PairRows {
  const Args& args;
  int b, row0, warp;  // the matrix; the block's first row; the warp among those with rows
  float sum[kSums > 0 ? kSums : 1][kFragments][kPieces][4 * kPieceTiles];
  float reduced[kReductions > 0 ? kReductions : 1][kFragments][2];
  float of_rows[kRowValues > 0 ? kRowValues : 1][kFragments][2];

  __device__ __forceinline__ PairRows(const Args& args, int warp) : args(args), b(0), row0(0), warp(warp) {}

  __device__ __forceinline__ void begin(int matrix, int first_row) {
    b = matrix;
    row0 = first_row;
#pragma unroll
    for (int m = 0; m < kSums; ++m)
#pragma unroll
      for (int f = 0; f < kFragments; ++f)
#pragma unroll
        for (int p = 0; p < kPieces; ++p)
#pragma unroll
          for (int i = 0; i < 4 * kPieceTiles; ++i) sum[m][f][p][i] = 0;
    each<kReductions>([&](auto n) {
      constexpr int kN = decltype(n)::value, kKind = reduction_of(kN);
      const float none =
          kKind == kReducesSum ? 0.0f : __int_as_float(kKind == kReducesMax ? 0xff800000 : 0x7f800000);
#pragma unroll
      for (int f = 0; f < kFragments; ++f) reduced[kN][f][0] = reduced[kN][f][1] = none;
    });
    if constexpr (kRowValues > 0)
#pragma unroll
      for (int f = 0; f < kFragments; ++f)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float made[kRowValues > 0 ? kRowValues : 1][2];
          row_values(args, b, row_of(f, h), made);
#pragma unroll
          for (int n = 0; n < kRowValues; ++n) of_rows[n][f][h] = made[n][0];
        }
  }

  __device__ __forceinline__ int row_of(int f, int half) const {
    return row0 + (warp * kFragments + f) * 16 + half * 8 + threadIdx.x % 32 / 4;
  }

  template <int N>
  __device__ __forceinline__ void reduce(int f, int half, float value) {
    constexpr int kKind = reduction_of(N);
    float& r = reduced[N][f][half];
    r = kKind == kReducesSum ? r + value : kKind == kReducesMax ? greatest(r, value) : least(r, value);
  }

  /// Calls f for the pairs of columns c0 + 16 step and on of each row: f(given, row, column, what exists, f,
  /// half, number in s, number in a weight's operand). `values`: those of the tile's columns, in shared
  /// memory. Products, of which there are First, are left for f to fill in.
  template <int First, bool Whole, class F>
  __device__ __forceinline__ void each_pair(int c0, int step, uint32 values, const F& f) const {
    const bool ragged = !Whole && c0 + kColumns > args.shape.columns;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = 16 * step + half * 8 + threadIdx.x % 4 * 2, c = c0 + at;
      const bool there[2] = {!ragged || c < args.shape.columns, !ragged || c + 1 < args.shape.columns};
      float given[First + kRowValues + kColumnValues][2];
#pragma unroll
      for (int n = 0; n < kColumnValues; ++n)
        load_shared_pair(values + (n * kColumns + at) * 4, given[First + kRowValues + n]);
#pragma unroll
      for (int i = 0; i < kFragments; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
#pragma unroll
          for (int n = 0; n < kRowValues; ++n) given[First + n][0] = given[First + n][1] = of_rows[n][i][h];
          f(given, row_of(i, h), c, there, i, h, 8 * step + 4 * half + 2 * h, 2 * half + h);
        }
    }
  }

  static __device__ __forceinline__ uint32 operand(const float (&x)[2], const bool (&there)[2]) {
    return pair_of(there[0] ? x[0] : 0.0f, there[1] ? x[1] : 0.0f, Element{});
  }

  /// The first product becomes what weights are made of.
  template <bool Whole>
  __device__ __forceinline__ void weigh_early(Products& s, int c0, int step, uint32 values) const {
    each_pair<1, Whole>(c0, step, values,
                        [&](auto& given, int r, int c, const bool(&)[2], int f, int, int at, int) {
                          float* const here = &s[0][f][at];
                          given[0][0] = here[0];
                          given[0][1] = here[1];
                          float made[1][2];
                          if constexpr (Whole && Config::kMasks)
                            early_whole(args, b, r, c, given, made);
                          else
                            early(args, b, r, c, given, made);
                          here[0] = made[0][0];
                          here[1] = made[0][1];
                        });
  }

  /// The weights of columns c0 + 16 step and on; what is reduced is added.
  template <bool Whole>
  __device__ __forceinline__ void weigh(const Products& s, int c0, int step, uint32 values, Weights& w) {
    each_pair<kProducts, Whole>(
        c0, step, values,
        [&](auto& given, int r, int c, const bool(&there)[2], int f, int h, int at, int to) {
#pragma unroll
          for (int p = 0; p < kProducts; ++p) {
            given[p][0] = s[p][f][at];
            given[p][1] = s[p][f][at + 1];
          }
          float made[kSums + kReductions][2];
          if constexpr (Whole && Config::kMasks)
            weights_whole(args, b, r, c, given, made);
          else
            weights(args, b, r, c, given, made);
#pragma unroll
          for (int m = 0; m < kSums; ++m) w[m][f][to] = operand(made[m], there);
          each<kReductions>([&](auto n) {
            constexpr int kN = decltype(n)::value;
            if (there[0]) reduce<kN>(f, h, made[kSums + kN][0]);
            if (there[1]) reduce<kN>(f, h, made[kSums + kN][1]);
          });
        });
  }

  /// Whether a low tile adds nothing to the rows of this thread.
  __device__ __forceinline__ bool low_adds_nothing() const {
    bool nothing = true;
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        nothing = nothing && (row_of(f, h) >= args.shape.rows || adds_nothing(args, b, row_of(f, h)));
    return nothing;
  }

  static constexpr int kWide = Config::kFinish, kTiles = kWide == 8 ? 4 : 1;  // of which a lane gets columns
  static_assert((kWide == 2 || kWide == 8) && kPieces * kPieceTiles % kTiles == 0, "");

  /// Columns of sum m that this lane stores, from those of tiles n and on.
  __device__ __forceinline__ void take_columns(int m, int f, int h, int n, float (&x)[kWide]) const {
    float y[4][2];
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        y[t][e] = sum[m][f][(n + t) / kPieceTiles][(n + t) % kPieceTiles * 4 + 2 * h + e];
    if constexpr (kTiles == 4) gather_columns(y);
#pragma unroll
    for (int e = 0; e < kWide; ++e) x[e] = y[e / 2][e % 2];
  }

  __device__ __forceinline__ void write() {
    const int column = threadIdx.x % 4 * kWide;
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int r = row_of(f, h);
        if constexpr (kReductions > 0) {
          float x[kReductions > 0 ? kReductions : 1][2];
          each<kReductions>([&](auto n) {
            constexpr int kN = decltype(n)::value;
            reduce<kN>(f, h, __shfl_xor_sync(0xffffffffu, reduced[kN][f][h], 1));
            reduce<kN>(f, h, __shfl_xor_sync(0xffffffffu, reduced[kN][f][h], 2));
            x[kN][0] = x[kN][1] = reduced[kN][f][h];
          });
          if (column == 0 && r < args.shape.rows) finish_row(args, b, r, x);
        }
        if constexpr (kSums > 0) {
#pragma unroll
          for (int n = 0; n < kPieces * kPieceTiles; n += kTiles) {
            const int d = 8 * n + column, left = Config::kOut - d;
            float x[kSums > 0 ? kSums : 1][kWide];
#pragma unroll
            for (int m = 0; m < kSums; ++m) take_columns(m, f, h, n, x[m]);
            if (r < args.shape.rows && left > 0) finish(args, b, r, d, left < kWide ? left : kWide, x);
          }
        }
      }
  }
};
