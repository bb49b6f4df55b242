// What main loops of Hopper over pairs share: stages of shared memory, items that blocks take, and what tells
// wgmma where tiles stand. Operands stand in slabs of 64 columns, permuted in units of 16 bytes over 128;
// tensor maps fill with 0 what lies outside of a matrix.
#pragma once

// One warpgroup leaves room for a second block, whose products run while this one's results are written.
constexpr int kGroups = kWarps / 4, kThreads = 128 * (kGroups + 1), kBlocksPerSm = kGroups == 1 ? 2 : 1;
constexpr int kStages = Config::kStages;
constexpr int kSlabRow = 128;                        // bytes
constexpr int kWalkers = 32 * (kWarps + 1);          // threads that walk over tiles
constexpr int kTurns = 1, kVote = kTurns + kGroups;  // named barriers; kTurns + g: the turn of group g

/// Which of so many stages is next, and the parity of its phase.
template <int Stages>
struct TurnOf {
  int stage = 0;
  uint32 parity = 0;
  __device__ __forceinline__ void next() {
    if constexpr (Stages > 1) stage = stage + 1 == Stages ? 0 : stage + 1;
    parity ^= stage == 0;
  }
  /// The stage before.
  __device__ __forceinline__ int before() const { return stage == 0 ? Stages - 1 : stage - 1; }
};
typedef TurnOf<kStages> Turn;

/// Asks for the next item that no block has taken; by a whole warp, which need not wait for the answer yet.
/// args.counters[0] counts items beyond those that the blocks begin with, [1] blocks that found none; the
/// last of these leaves both 0 for the next launch.
__device__ __forceinline__ uint32 ask_item(const Args& args) {
  return threadIdx.x % 32 == 0 ? atomicAdd(args.counters, 1u) : 0u;
}
__device__ __forceinline__ int asked_item(const Args& args, uint32 answer) {
  int item = 0;
  if (threadIdx.x % 32 == 0) {
    item = gridDim.x + answer;
    if (item >= args.parts.items) {
      __threadfence();
      if (atomicAdd(args.counters + 1, 1u) == gridDim.x - 1) args.counters[0] = args.counters[1] = 0;
    }
  }
  return __shfl_sync(0xffffffffu, item, 0);
}

/// Where the copy engine finds a matrix: coordinates behind those of columns and rows. Found once for many
/// tiles: divisions for each of them would take the copying warp longer than others need for its products.
template <int Rank>
struct MatrixPlace {
  int parts[Rank > 2 ? Rank - 2 : 1];
  /// `which`: the operand's number in args.parts.
  __device__ __forceinline__ MatrixPlace(const Args& args, int which, int b) {
    parts[0] = 0;
#pragma unroll
    for (int p = 0; p < Rank - 2; ++p)
      parts[p] = b / args.parts.divisor[which][p] % args.parts.extent[which][p];
  }
};

/// Orders copies of `Slabs` slabs of rows of a matrix.
template <int Slabs, int Rank>
__device__ __forceinline__ void copy_rows(const TensorMap& map, const MatrixPlace<Rank>& matrix, int row,
                                          uint32 to, int slab, uint32 full) {
  int c[Rank];
  c[1] = row;
#pragma unroll
  for (int p = 0; p < Rank - 2; ++p) c[2 + p] = matrix.parts[p];
#pragma unroll
  for (int s = 0; s < Slabs; ++s) {
    c[0] = 64 * s;
    copy_box(to + s * slab, map, c, full);
  }
}

/// What the copying warp says of a tile, in a word beside the copies: its first column, a multiple of 32,
/// plus its kind, plus these: it is the last tile of its pass; no further pass reads the rows' operands;
/// groups of rows that masks leave nothing of may leave it out.
constexpr int kLastTile = 4, kLastPass = 8, kLeaves = 16;
/// And of a block of rows, in two words: the matrix, or -1 when there are no more blocks; the first row, plus
/// these.
constexpr int kHasTiles = 1, kHasLow = 2;  // some that are not low; low ones that may add something

__device__ __forceinline__ uint32 tile_note(int column0, int kind, bool last) {
  return uint32(column0 | kind | (last ? kLastTile : 0));
}
__device__ __forceinline__ uint32 rows_note(int row0, bool has_tiles, bool has_low) {
  return uint32(row0 | (has_tiles ? kHasTiles : 0) | (has_low ? kHasLow : 0));
}
/// A word that the copying warp wrote; from one lane, so that what is made of it is in registers of the warp.
__device__ __forceinline__ uint32 noted(uint32 from) {
  return __shfl_sync(0xffffffffu, load_shared(from), 0);
}
constexpr uint32 kNoted = ~31u;  // the column's or the row's bits

/// What tells wgmma where a tile stands. k contiguous: rows of 128 bytes, eight of them a group. Else: rows
/// of 64 elements along n, one for each k, eight of them a group; the next 64 elements stand `slab` bytes on.
template <bool KMajor>
__device__ __forceinline__ uint64 tile_descriptor(uint32 at, int slab) {
  constexpr uint64 kStride = 1024 >> 4, kPermuted128 = 1;
  return uint64((at & 0x3ffff) >> 4) | uint64(KMajor ? 1 : slab >> 4) << 16 | kStride << 32 |
         kPermuted128 << 62;
}

/// A launch that leaves out tiles may find meanwhile itself what is not finite (kChecks), by the warps beside
/// the one that copies. A second launch of the same kernel (args.parts.again) makes all results again where
/// something was found, and else ends at once.
constexpr int kCheckers = 3, kCheckAhead = 2;  // warps; loads of each under way

// The hook `flag` is there with kChecks alone: what calls it are templates.

/// Whether the launch before found something; by all threads of a block.
template <class A>
__device__ __forceinline__ bool finds_flag(const A& args) {
  const int tiles = (args.shape.columns + kFlagColumns - 1) / kFlagColumns, all = args.shape.batch * tiles;
  const auto* const flags = reinterpret_cast<const unsigned char*>(flag(args, 0, 0));
  uint32 found = 0;
#pragma unroll 1
  for (int at = 16 * int(threadIdx.x); at < all; at += 16 * kThreads) {
    if (at + 16 <= all) {
      const uint4 x = *reinterpret_cast<const uint4*>(flags + at);
      found |= x.x | x.y | x.z | x.w;
    } else {
      for (int i = at; i < all; ++i) found |= flags[i];
    }
  }
  return __syncthreads_or(found != 0);
}

/// By the warps of the copying warpgroup that do not copy; odd(b, c0, c1, lane): whether columns c0 … c1 - 1
/// have to be looked at though masks leave nothing of them, of what a lane looks at.
template <class A, class F>
__device__ __forceinline__ void check_tiles(const A& args, F odd) {
  const int tiles = (args.shape.columns + kFlagColumns - 1) / kFlagColumns, lane = threadIdx.x % 32;
  const int all = args.shape.batch * tiles;
#pragma unroll 1
  for (int at = int(blockIdx.x) * kCheckers + int(threadIdx.x / 32) - 1; at < all;
       at += gridDim.x * kCheckers) {
    const int b = at / tiles, tile = at - b * tiles, c0 = tile * kFlagColumns;
    const int c1 = c0 + kFlagColumns < args.shape.columns ? c0 + kFlagColumns : args.shape.columns;
    const bool found = __any_sync(0xffffffffu, odd(b, c0, c1, lane));
    if (lane == 0) *flag(args, b, tile) = found;
  }
}
