// Attention by mma.sync, for sm_80 and later: a block takes kRows rows of one matrix of the batch and walks
// tiles of kColumns columns. Scores stay in registers, become weights there, and are the first operand of the
// second product as they lie. k and v pass through shared memory; while one is multiplied the next is under
// way.
//
// Rows of shared memory are one 16-byte word longer than whole, so that the eight rows of a matrix load lie
// in different banks. Maxima that are -inf count as 0 in exponentials, so that a tile of nothing adds
// nothing.
#pragma once

typedef Config::Element Element;
constexpr int kDepthSteps = (Config::kHead + 15) / 16, kWidthTiles = (Config::kOut + 15) / 16 * 2;
constexpr bool kTall = Config::kHead <= 128 && Config::kOut <= 128;  // a warp has two fragments of rows
constexpr int kFragments = kTall ? 2 : 1, kWarps = kTall ? 4 : 8;
constexpr int kThreads = 32 * kWarps, kBlocksPerSm = kTall ? 2 : 1;
constexpr int kRows = 16 * kFragments * kWarps, kColumns = 64;
constexpr int kDepthPitch = 2 * 16 * kDepthSteps + 16, kWidthPitch = 2 * 8 * kWidthTiles + 16;  // bytes
constexpr int kQBytes = kRows * kDepthPitch, kKBytes = kColumns * kDepthPitch,
              kVBytes = kColumns * kWidthPitch;
constexpr int kSharedBytes = kQBytes + kKBytes + kVBytes;
constexpr float kLog2 = Config::kBase2 ? 1.0f : 1.44269504f;   // of the base of exponentials
constexpr float kVanishes = Config::kBase2 ? 150.0f : 104.0f;  // exponentials of less are 0
constexpr int kMixed = 0, kWhole = 1, kLow = 2;                // kinds of tiles

__device__ __forceinline__ float minus_inf() { return __int_as_float(0xff800000); }

#ifdef KILN_FAKE_DEVICE
__device__ __forceinline__ float exp2_fast(float x) { return exp2f(x); }
__device__ __forceinline__ uint32 pair_of(float low, float high, bf16) {
  return to_bf16(low).bits | uint32(to_bf16(high).bits) << 16;
}
__device__ __forceinline__ uint32 pair_of(float low, float high, f16) {
  return to_f16(low).bits | uint32(to_f16(high).bits) << 16;
}
#else
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ uint32 pair_of(float low, float high, bf16) {
  uint32 y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
__device__ __forceinline__ uint32 pair_of(float low, float high, f16) {
  uint32 y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}

#endif

/// Rows first … first + Count of a matrix, with zeros for what lies outside of it.
template <int Count, int Words, int Width, int Pitch>
__device__ __forceinline__ void copy_rows(uint32 to, const Element* from, int64 stride, int first, int end) {
  constexpr int kEach = Count * Words / kThreads;
  static_assert(Count * Words % kThreads == 0);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int at = i * kThreads + threadIdx.x, row = at / Words, word = at % Words;
    const int r = first + row;
    const uint32 place = to + row * Pitch + word * 16;
    const int there = r < end ? Width - word * 8 : 0;
    const Element* const source = from + (r < end ? r : 0) * stride + word * 8;
    if constexpr (Config::kAligned) {
      copy_async<16>(place, there > 0 ? source : from, there >= 8 ? 16 : there > 0 ? 2 * there : 0);
    } else {
      uint32 x[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const uint32 low = 2 * k < there ? source[2 * k].bits : 0,
                     high = 2 * k + 1 < there ? source[2 * k + 1].bits : 0;
        x[k] = low | high << 16;
      }
      store_shared(place, make_uint4(x[0], x[1], x[2], x[3]));
    }
  }
}

struct AttentionBlock {
  const Args& args;
  int b, row0;     // of the block
  uint32 q, k, v;  // shared memory
  const Element *k_rows, *v_rows;
  float sum[kFragments][kWidthTiles][4];  // of weights times v
  float max[kFragments][2], sums[kFragments][2][Config::kSums > 0 ? Config::kSums : 1];

  __device__ __forceinline__ int row_of(int f, int half) const {
    return row0 + (threadIdx.x / 32 * kFragments + f) * 16 + half * 8 + threadIdx.x % 32 / 4;
  }

  __device__ __forceinline__ void copy_k(int j0) const {
    copy_rows<kColumns, 2 * kDepthSteps, Config::kHead, kDepthPitch>(k, k_rows, args.shape.k_row, j0,
                                                                     args.shape.columns);
  }
  __device__ __forceinline__ void copy_v(int j0) const {
    copy_rows<kColumns, kWidthTiles, Config::kOut, kWidthPitch>(v, v_rows, args.shape.v_row, j0,
                                                                args.shape.columns);
  }

  __device__ __forceinline__ void scores(float (&s)[kFragments][kColumns / 8][4]) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[f][n][e] = 0;
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
          multiply_add(s[f][2 * n], a[f], x[0], x[1], Element{});
          multiply_add(s[f][2 * n + 1], a[f], x[2], x[3], Element{});
        }
      }
    }
  }

  /// Scores become weights; what was summed before is scaled to the new maxima.
  template <bool Whole>
  __device__ __forceinline__ void weigh(float (&s)[kFragments][kColumns / 8][4], int j0) {
    const int column = j0 + threadIdx.x % 4 * 2;
    const bool ragged = !Whole && j0 + kColumns > args.shape.columns;
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int i = row_of(f, h);
        float most = minus_inf();
#pragma unroll
        for (int n = 0; n < kColumns / 8; ++n) {
          const int j = column + 8 * n;
          const float x[1][2] = {{s[f][n][2 * h], s[f][n][2 * h + 1]}};
          float t[1][2];
          if constexpr (Whole && Config::kMasks)
            score_whole(args, b, i, j, x, t);
          else
            score(args, b, i, j, x, t);
          if (ragged) {
            if (j >= args.shape.columns) t[0][0] = minus_inf();
            if (j + 1 >= args.shape.columns) t[0][1] = minus_inf();
          }
          s[f][n][2 * h] = t[0][0];
          s[f][n][2 * h + 1] = t[0][1];
          most = greatest(most, greatest(t[0][0], t[0][1]));
        }
        most = greatest(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = greatest(most, __shfl_xor_sync(0xffffffffu, most, 2));
        const float before = max[f][h], after = greatest(before, most);
        max[f][h] = after;
        // The difference comes first: where all scores of a row are -1e9, its product with kLog2 is 0 that
        // way.
        const float shift = after == minus_inf() ? 0.0f : after;
        const float scale = exp2_fast((before - shift) * kLog2);
#pragma unroll
        for (int k = 0; k < Config::kSums; ++k) sums[f][h][k] *= scale;
#pragma unroll
        for (int n = 0; n < kWidthTiles; ++n) {
          sum[f][n][2 * h] *= scale;
          sum[f][n][2 * h + 1] *= scale;
        }
#pragma unroll
        for (int n = 0; n < kColumns / 8; ++n) {
          const int j = column + 8 * n;
          const float p[1][2] = {
              {exp2_fast((s[f][n][2 * h] - shift) * kLog2), exp2_fast((s[f][n][2 * h + 1] - shift) * kLog2)}};
          float w[1 + Config::kSums][2];
          weights(args, b, i, j, p, w);
          s[f][n][2 * h] = w[0][0];
          s[f][n][2 * h + 1] = w[0][1];
#pragma unroll
          for (int k = 0; k < Config::kSums; ++k) sums[f][h][k] += w[1 + k][0] + w[1 + k][1];
        }
      }
    }
  }

  __device__ __forceinline__ void products(const float (&s)[kFragments][kColumns / 8][4]) {
    const int lane = threadIdx.x % 32;
    const uint32 v_at = v + lane % 16 * kWidthPitch + lane / 16 * 16;
#pragma unroll
    for (int step = 0; step < kColumns / 16; ++step) {
      uint32 a[kFragments][4];
#pragma unroll
      for (int f = 0; f < kFragments; ++f)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          a[f][e] =
              pair_of(s[f][2 * step + e / 2][e % 2 * 2], s[f][2 * step + e / 2][e % 2 * 2 + 1], Element{});
#pragma unroll
      for (int n = 0; n < kWidthTiles / 2; ++n) {
        uint32 x[4];
        load_matrices<true>(x, v_at + step * 16 * kWidthPitch + n * 32);
#pragma unroll
        for (int f = 0; f < kFragments; ++f) {
          multiply_add(sum[f][2 * n], a[f], x[0], x[1], Element{});
          multiply_add(sum[f][2 * n + 1], a[f], x[2], x[3], Element{});
        }
      }
    }
  }

  /// Whole tiles have whole rows of v, low ones have a part of v that is finite.
  __device__ __forceinline__ int kind_at(int j0) const {
    const bool ragged = j0 + kColumns > args.shape.columns;
    int kind = kWhole;
    if constexpr (Config::kMasks) {
      const int i1 = row0 + kRows < args.shape.rows ? row0 + kRows : args.shape.rows;
      kind = tile_kind(args, b, row0, i1 - 1, j0, (ragged ? args.shape.columns : j0 + kColumns) - 1);
    }
    if (kind == kWhole && ragged) kind = kMixed;
    if constexpr (Config::kLow) {
      if (kind == kLow && !v_is_finite(args, b, j0 / kColumns)) kind = kMixed;
    }
    return kind;
  }

  /// The next tile from j0 on that is low, or that is not; `columns` or more: there is none.
  __device__ __forceinline__ int next(int j0, bool low, int& kind) const {
    for (; j0 < args.shape.columns; j0 += kColumns) {
      kind = kind_at(j0);
      if ((kind == kLow) == low) break;
    }
    return j0;
  }

  /// Whether a low tile adds nothing: each row's maximum is far above what it has.
  __device__ __forceinline__ bool adds_nothing(float greatest_here) const {
    bool far = true;
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        far = far && (max[f][h] > greatest_here + kVanishes || row_of(f, h) >= args.shape.rows);
    return far || greatest_here == minus_inf();
  }

  __device__ __forceinline__ void tiles(bool low) {
    int now = kMixed, coming = kMixed;
    int j0 = next(0, low, now);
    if (j0 < args.shape.columns) copy_k(j0);
    copies_commit();
    while (j0 < args.shape.columns) {
      copies_wait<0>();
      __syncthreads();
      copy_v(j0);
      copies_commit();
      float s[kFragments][kColumns / 8][4];
      scores(s);
      const int after = next(j0 + kColumns, low, coming);
      __syncthreads();
      if (after < args.shape.columns) copy_k(after);
      copies_commit();
      if (now == kWhole)
        weigh<true>(s, j0);
      else
        weigh<false>(s, j0);
      copies_wait<1>();
      __syncthreads();
      products(s);
      j0 = after;
      now = coming;
    }
    copies_wait<0>();
  }

  __device__ __forceinline__ void write() {
    const int column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int i = row_of(f, h);
#pragma unroll
        for (int k = 0; k < Config::kSums; ++k) {
          sums[f][h][k] += __shfl_xor_sync(0xffffffffu, sums[f][h][k], 1);
          sums[f][h][k] += __shfl_xor_sync(0xffffffffu, sums[f][h][k], 2);
        }
        if (i >= args.shape.rows) continue;
#pragma unroll
        for (int n = 0; n < kWidthTiles; ++n) {
          const int d = column + 8 * n;
          if (d >= Config::kOut) continue;
          float x[2 + Config::kSums][2];
          x[0][0] = sum[f][n][2 * h];
          x[0][1] = sum[f][n][2 * h + 1];
          x[1][0] = x[1][1] = max[f][h];
#pragma unroll
          for (int k = 0; k < Config::kSums; ++k) x[2 + k][0] = x[2 + k][1] = sums[f][h][k];
          finish(args, b, i, d, Config::kOut - d < 2 ? Config::kOut - d : 2, x);
        }
      }
  }
};

__device__ __forceinline__ void run_attention(const Args& args) {
  const int number = blockIdx.x / args.shape.blocks;
  // later rows of a causal attention have more tiles: they come first
  const int block = args.shape.blocks - 1 - (blockIdx.x - number * args.shape.blocks);
  AttentionBlock x{args, number, block * kRows};
  x.q = shared_base();
  x.k = x.q + kQBytes;
  x.v = x.k + kKBytes;
  x.k_rows = k_matrix(args, number);
  x.v_rows = v_matrix(args, number);
#pragma unroll
  for (int f = 0; f < kFragments; ++f) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      x.max[f][h] = minus_inf();
#pragma unroll
      for (int k = 0; k < Config::kSums; ++k) x.sums[f][h][k] = 0;
    }
#pragma unroll
    for (int n = 0; n < kWidthTiles; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) x.sum[f][n][e] = 0;
  }
  copy_rows<kRows, 2 * kDepthSteps, Config::kHead, kDepthPitch>(x.q, q_matrix(args, number), args.shape.q_row,
                                                                x.row0, args.shape.rows);
  // Low tiles come last, and only where they add something. One loop, so that its body is compiled once.
#pragma unroll 1
  for (int low = 0; low <= Config::kLow; ++low) {
    if constexpr (Config::kLow) {
      if (low == 1) {
        int kind;
        const bool any = x.next(0, true, kind) < args.shape.columns;
        __shared__ bool more;
        if (threadIdx.x == 0) more = false;
        __syncthreads();
        if (any && !x.adds_nothing(tile_greatest(args, number))) more = true;
        __syncthreads();
        if (!more) break;
      }
    }
    x.tiles(low == 1);
  }
  x.write();
}
