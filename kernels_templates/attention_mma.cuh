// Attention by mma.sync, for sm_80 and later: a block takes kRows rows of one matrix of the batch and walks
// tiles of kColumns columns. Scores stay in registers, become weights there, and are the first operand of the
// second product as they lie. k and v pass through shared memory; while one is multiplied the next is under
// way.
//
// Rows of shared memory are one 16-byte word longer than whole, so that the eight rows of a matrix load lie
// in different banks.
#pragma once

constexpr bool kFloats = sizeof(Element) == 4, kNarrow = Config::kHead <= 64 && Config::kOut <= 64;
constexpr int kBlocksPerSm = kWarps != 4 ? 1 : kFloats && kNarrow ? 3 : 2;
constexpr int kSize = sizeof(Element), kDepthSteps = (kSize * Config::kHead + 31) / 32;
constexpr int kWidthWords = kSize * kWidthTiles / 2;                                     // of 16 bytes
constexpr int kDepthPitch = 32 * kDepthSteps + 16, kWidthPitch = 16 * kWidthWords + 16;  // bytes
constexpr int kQBytes = kRows * kDepthPitch, kKBytes = kColumns * kDepthPitch;

struct AttentionBlock {
  const Args& args;
  PairTiles tile;
  AttentionRows rows;
  uint32 q, k, v;  // shared memory
  const Element *k_rows, *v_rows;

  __device__ __forceinline__ void copy_k(int j0) const {
    copy_rows<kColumns, 2 * kDepthSteps, Config::kHead, kDepthPitch>(k, k_rows, args.shape.k_row, j0,
                                                                     args.shape.columns);
  }
  __device__ __forceinline__ void copy_v(int j0) const {
    copy_rows<kColumns, kWidthWords, Config::kOut, kWidthPitch>(v, v_rows, args.shape.v_row, j0,
                                                                args.shape.columns);
  }

  __device__ __forceinline__ void scores(Scores& s, float) const {
    float_scores<kDepthSteps, kDepthPitch>(s, q + threadIdx.x / 32 * kFragments * 16 * kDepthPitch, k);
  }
  template <class Half>
  __device__ __forceinline__ void scores(Scores& s, Half type) const {
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
      for (int n = 0; n < kColumns / 2; ++n) s[f][n] = 0;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32 q_at = q + (warp * kFragments * 16 + lane % 16) * kDepthPitch + lane / 16 * 16;
    const uint32 k_at = k + (lane / 16 * 8 + lane % 8) * kDepthPitch + lane / 8 % 2 * 16;
#pragma unroll
    for (int step = 0; step < kDepthSteps; ++step) {
      uint32 a[kFragments][4];
#pragma unroll
      for (int f = 0; f < kFragments; ++f)
        load_matrices<false>(a[f], q_at + f * 16 * kDepthPitch + step * 32);
#pragma unroll
      for (int n = 0; n < kColumns / 16; ++n) {
        uint32 x[4];
        load_matrices<false>(x, k_at + n * 16 * kDepthPitch + step * 32);
#pragma unroll
        for (int f = 0; f < kFragments; ++f) {
          multiply_add(reinterpret_cast<float(&)[4]>(s[f][8 * n]), a[f], x[0], x[1], type);
          multiply_add(reinterpret_cast<float(&)[4]>(s[f][8 * n + 4]), a[f], x[2], x[3], type);
        }
      }
    }
  }

  __device__ __forceinline__ void products(const Scores& s, float) {
    float_products<kWidthPitch>(rows, s, v);
  }
  template <class Half>
  __device__ __forceinline__ void products(const Scores& s, Half type) {
    const int lane = threadIdx.x % 32;
    const uint32 v_at = v + lane % 16 * kWidthPitch + lane / 16 * 16;
#pragma unroll
    for (int step = 0; step < kColumns / 16; ++step) {
      uint32 a[kFragments][4];
#pragma unroll
      for (int f = 0; f < kFragments; ++f) rows.operand(s, f, step, a[f], type);
#pragma unroll
      for (int n = 0; n < kWidthTiles / 2; ++n) {
        uint32 x[4];
        load_matrices<true>(x, v_at + step * 16 * kWidthPitch + n * 32);
#pragma unroll
        for (int f = 0; f < kFragments; ++f) {
          multiply_add(reinterpret_cast<float(&)[4]>(rows.at(f, 2 * n, 0)), a[f], x[0], x[1], type);
          multiply_add(reinterpret_cast<float(&)[4]>(rows.at(f, 2 * n + 1, 0)), a[f], x[2], x[3], type);
        }
      }
    }
  }

  __device__ __forceinline__ void tiles(bool low) {
    int now = kMixed, coming = kMixed;
    int j0 = tile.before(args.shape.columns, low, now);
    if (j0 >= 0) copy_k(j0);
    copies_commit();
    while (j0 >= 0) {
      copies_wait<0>();
      __syncthreads();
      copy_v(j0);
      copies_commit();
      Scores s;
      scores(s, Element{});
      const int after = tile.before(j0, low, coming);
      __syncthreads();
      if (after >= 0) copy_k(after);
      copies_commit();
      rows.weigh(s, j0, now);
      rows.rescale();
      copies_wait<1>();
      __syncthreads();
      products(s, Element{});
      j0 = after;
      now = coming;
    }
    copies_wait<0>();
  }
};

__device__ __forceinline__ void run_attention(const Args& args) {
  const int number = blockIdx.x / args.shape.blocks;
  // later rows of a causal attention have more tiles: they come first
  const int block = args.shape.blocks - 1 - (blockIdx.x - number * args.shape.blocks);
  AttentionBlock x{args, PairTiles(args), AttentionRows(args, threadIdx.x / 32)};
  x.q = shared_base();
  x.k = x.q + kQBytes;
  x.v = x.k + kKBytes;
  x.k_rows = k_matrix(args, number);
  x.v_rows = v_matrix(args, number);
  x.tile.begin(number, block * kRows);
  x.rows.begin(number, block * kRows);
  copy_rows<kRows, 2 * kDepthSteps, Config::kHead, kDepthPitch>(x.q, q_matrix(args, number), args.shape.q_row,
                                                                block * kRows, args.shape.rows);
  // Low tiles come last, and only where they add something. One loop, so that its body is compiled once.
#pragma unroll 1
  for (int low = 0; low <= Config::kLow; ++low) {
    if constexpr (Config::kLow) {
      if (low == 1) {
        int kind;
        const bool any = x.tile.before(args.shape.columns, true, kind) >= 0;
        __shared__ bool more;
        if (threadIdx.x == 0) more = false;
        __syncthreads();
        if (any && !x.rows.adds_nothing(tile_greatest(args, number))) more = true;
        __syncthreads();
        if (!more) break;
      }
    }
    x.tiles(low == 1);
  }
  x.rows.write();
}
