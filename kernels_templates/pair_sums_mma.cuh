// Sums over pairs by mma.sync, for sm_80 and later: a block takes kRows rows of one matrix of the batch and
// walks tiles of kColumns columns. Products stay in registers, become weights there, 16 columns at a time,
// and are the first operand of the sums' products as they lie. Operands of columns pass through kStages
// stages of shared memory; with two, one is filled while the other is multiplied.
#pragma once

constexpr int kBlocksPerSm = Config::kBlocks;

/// Of an operand in shared memory, in bytes.
constexpr int steps_of(int operand) { return (depth_of(operand) + 15) / 16; }
constexpr int pitch_of(int operand) { return 32 * steps_of(operand) + 16; }
constexpr int pitches_before(int operand) {
  int total = 0;
  for (int o = 0; o < operand; ++o) total += pitch_of(o);
  return total;
}
constexpr int kRowBytes = kRows * pitches_before(kProducts),
              kOperandBytes = kColumns * pitches_before(kOperands), kStageBytes = kOperandBytes + kValueBytes;

template <int P>
__device__ __forceinline__ const Element* rows_of(const Args& args, int b) {
  if constexpr (P == 0) return x_matrix0(args, b);
  if constexpr (P == 1) return x_matrix1(args, b);
  return x_matrix2(args, b);
}
template <int O>
__device__ __forceinline__ const Element* columns_of(const Args& args, int b) {
  if constexpr (O == 0) return y_matrix0(args, b);
  if constexpr (O == 1) return y_matrix1(args, b);
  if constexpr (O == 2) return y_matrix2(args, b);
  return y_matrix3(args, b);
}

struct PairBlock {
  const Args& args;
  PairTiles tile;
  PairRows rows;
  uint32 x, y;  // shared memory
  const Element* from[kOperands];

  __device__ __forceinline__ PairBlock(const Args& args, int b, int row0)
      : args(args), tile(args), rows(args, threadIdx.x / 32), x(shared_base()), y(x + kRowBytes) {
    tile.begin(b, row0);
    rows.begin(b, row0);
    each<kProducts>([&](auto p) {
      constexpr int kP = decltype(p)::value;
      copy_rows<kRows, 2 * steps_of(kP), depth_of(kP), pitch_of(kP)>(
          x + kRows * pitches_before(kP), rows_of<kP>(args, b), args.shape.x_row[kP], row0, args.shape.rows);
    });
    each<kOperands>([&](auto o) { from[decltype(o)::value] = columns_of<decltype(o)::value>(args, b); });
  }

  __device__ __forceinline__ void copy_columns(int c0, uint32 stage) const {
    each<kOperands>([&](auto o) {
      constexpr int kO = decltype(o)::value;
      copy_rows<kColumns, 2 * steps_of(kO), depth_of(kO), pitch_of(kO)>(
          stage + kColumns * pitches_before(kO), from[kO], args.shape.y_row[kO], c0, args.shape.columns);
    });
    if (threadIdx.x < 32) store_column_values(args, rows.b, c0, stage + kOperandBytes);
  }

  /// Product P of a tile.
  template <int P>
  __device__ __forceinline__ void multiply(float (&s)[kFragments][kColumns / 2], uint32 stage) const {
    constexpr int kPitch = pitch_of(P);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
      for (int n = 0; n < kColumns / 2; ++n) s[f][n] = 0;
    const uint32 x_at =
        x + kRows * pitches_before(P) + (warp * kFragments * 16 + lane % 16) * kPitch + lane / 16 * 16;
    const uint32 y_at =
        stage + kColumns * pitches_before(P) + (lane / 16 * 8 + lane % 8) * kPitch + lane / 8 % 2 * 16;
#pragma unroll
    for (int step = 0; step < steps_of(P); ++step) {
      uint32 a[kFragments][4];
#pragma unroll
      for (int f = 0; f < kFragments; ++f) load_matrices<false>(a[f], x_at + f * 16 * kPitch + step * 32);
#pragma unroll
      for (int n = 0; n < kColumns / 16; ++n) {
        uint32 y4[4];
        load_matrices<false>(y4, y_at + n * 16 * kPitch + step * 32);
#pragma unroll
        for (int f = 0; f < kFragments; ++f) {
          multiply_add(reinterpret_cast<float(&)[4]>(s[f][8 * n]), a[f], y4[0], y4[1], Element{});
          multiply_add(reinterpret_cast<float(&)[4]>(s[f][8 * n + 4]), a[f], y4[2], y4[3], Element{});
        }
      }
    }
  }

  /// What weights of 16 columns add to sum M.
  template <int M>
  __device__ __forceinline__ void add(const Weights& w, uint32 stage, int step) {
    constexpr int kO = operand_of(M), kPitch = pitch_of(kO);
    const int lane = threadIdx.x % 32;
    const uint32 z_at =
        stage + kColumns * pitches_before(kO) + (step * 16 + lane % 16) * kPitch + lane / 16 * 16;
#pragma unroll
    for (int n = 0; n < kPieceTiles / 2; ++n) {
      uint32 z[4];
      load_matrices<true>(z, z_at + n * 32);
#pragma unroll
      for (int f = 0; f < kFragments; ++f) {
        float* const to = &rows.sum[M][f][0][8 * n];
        multiply_add(reinterpret_cast<float(&)[4]>(to[0]), w[M][f], z[0], z[1], Element{});
        multiply_add(reinterpret_cast<float(&)[4]>(to[4]), w[M][f], z[2], z[3], Element{});
      }
    }
  }

  /// Weights of a tile, and what they add.
  template <bool Whole>
  __device__ __forceinline__ void add_tile(const Products& s, int c0, uint32 stage) {
    const uint32 values = fresh(stage + kOperandBytes);
#pragma unroll
    for (int step = 0; step < kColumns / 16; ++step) {
      Weights w;
      rows.weigh<Whole>(s, c0, step, values, w);
      each<kSums>([&](auto m) { add<decltype(m)::value>(w, stage, step); });
    }
  }

  __device__ __forceinline__ void tiles(bool low) {
    int now = kMixed, coming = kMixed;
    int c0 = tile.before(args.shape.columns, low, now);
    uint32 stage = y;
    if (c0 >= 0) copy_columns(c0, stage);
    copies_commit();
    while (c0 >= 0) {
      const int after = tile.before(c0, low, coming);
      copies_wait<0>();
      __syncthreads();
      const uint32 here = stage;
      if constexpr (Config::kStages == 2) {
        stage = here == y ? y + kStageBytes : y;
        if (after >= 0) copy_columns(after, stage);
        copies_commit();
      }
      Products s;
      each<kProducts>([&](auto p) { multiply<decltype(p)::value>(s[decltype(p)::value], here); });
      if (now == kWhole)
        add_tile<true>(s, c0, here);
      else
        add_tile<false>(s, c0, here);
      if constexpr (Config::kStages == 1) {
        __syncthreads();
        if (after >= 0) copy_columns(after, stage);
        copies_commit();
      }
      c0 = after;
      now = coming;
    }
    copies_wait<0>();
    __syncthreads();
  }

  /// Whether low tiles add something to a row of the block. By the whole block.
  __device__ __forceinline__ bool low_matters() {
    __shared__ bool more;
    if (threadIdx.x == 0) more = false;
    __syncthreads();
    if (!rows.low_adds_nothing()) more = true;
    __syncthreads();
    return more;
  }
};

__device__ __forceinline__ void run_pair_sums(const Args& args) {
  const int number = blockIdx.x / args.shape.blocks, at = blockIdx.x - number * args.shape.blocks;
  PairBlock block(args, number, (Config::kFirst ? at : args.shape.blocks - 1 - at) * kRows);
  // Low tiles come last, and only where they add something. One loop, so that its body is compiled once.
#pragma unroll 1
  for (int low = 0; low <= Config::kLow; ++low) {
    if constexpr (Config::kLow) {
      int kind;
      if (low == 1 && (block.tile.before(args.shape.columns, true, kind) < 0 || !block.low_matters())) break;
    }
    block.tiles(low == 1);
  }
  block.rows.write();
}
