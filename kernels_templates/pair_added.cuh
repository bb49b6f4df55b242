// Before and behind a launch that adds to a sum from several blocks (pair_sums_wgmma.cuh, kAdds): sums become
// 0, or they are stored as results (kStores). Their memory is tiles of 64 rows, each as the two warpgroups
// hold it that add to it, one behind the other: number n of thread t, four floats, is number 128 n + t. These
// are columns 8 n + 2 q and + 1 of rows g and g + 8 of its warp's 16, where q = t % 4, g = t % 32 / 4.
// Config: kOut, columns of a sum; kPadded, a multiple of 64, that are multiplied; kFinish, 8 or 2, how many a
// hook takes. Hooks: added_to and, with kStores, finish of pair_sums.cuh.
#pragma once

constexpr int kThreads = 256, kBlocksPerSm = 4, kEach = 8, kTileRows = 64;
constexpr int kTileFloats = kTileRows * Config::kPadded, kGroupEach = Config::kPadded / kEach / 2;
static_assert(Config::kOut % kEach == 0, "");

// Templates, since the hook finish is there with kStores alone.

/// 8 columns, number n, of rows r and r + 8 of a tile.
template <class A, class F>
__device__ __forceinline__ void store_sums(const A& args, const F* tile, int b, int row0, int r, int n) {
  const int group = n / kGroupEach;
  const F* const from =
      tile + group * (kTileFloats / 2) + 4 * (n % kGroupEach * 128 + r / 16 * 32 + r % 8 * 4);
  float x[2][kEach];
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    const float4 y = reinterpret_cast<const float4*>(from)[q];
    x[0][2 * q] = y.x, x[0][2 * q + 1] = y.y, x[1][2 * q] = y.z, x[1][2 * q + 1] = y.w;
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (row0 + r + 8 * h >= args.shape.rows) continue;
#pragma unroll
    for (int e = 0; e < kEach; e += Config::kFinish) {
      float given[1][Config::kFinish];
#pragma unroll
      for (int i = 0; i < Config::kFinish; ++i) given[0][i] = x[h][e + i];
      finish(args, b, row0 + r + 8 * h, kEach * n + e, Config::kFinish, given);
    }
  }
}

template <class F>
__device__ __forceinline__ void make_zero(F* at) {
  *reinterpret_cast<float4*>(at) = float4{0, 0, 0, 0};
}

__device__ __forceinline__ void run_pair_added(const Args& args) {
  constexpr int kParts = Config::kOut / kEach;
  const int tiles = args.shape.blocks, b = int(blockIdx.x) / tiles, number = int(blockIdx.x) - b * tiles;
  auto* const tile = added_to(args, b, number);
  if constexpr (Config::kStores) {
#pragma unroll 2
    for (int at = threadIdx.x; at < kTileRows / 2 * kParts; at += kThreads) {
      const int line = at / kParts;
      store_sums(args, tile, b, number * kTileRows, line / 8 * 16 + line % 8, at - line * kParts);
    }
  } else {
#pragma unroll
    for (int at = 4 * threadIdx.x; at < kTileFloats; at += 4 * kThreads) make_zero(tile + at);
  }
}
