// Sums over pairs on Hopper: the copy engine fills stages of shared memory with tiles of the operands of
// columns; warpgroups, each with 64 rows of the block, multiply out of them. One warp orders the copies. A
// block takes blocks of rows until none are left, so that copies for the next one run while this one's
// results are written; that warp says which, beside the operands of rows.
//
// The products that weights are made of are waited for; what the weights of a tile add is ordered together
// with the next tile's products. The warpgroups take turns in ordering, so that one's weights are made beside
// the other's products.
#pragma once

constexpr int slabs_of(int operand) { return (depth_of(operand) + 63) / 64; }
constexpr int slabs_before(int operand) {
  int total = 0;
  for (int o = 0; o < operand; ++o) total += slabs_of(o);
  return total;
}
constexpr int kRowSlab = kRows * kSlabRow, kTileSlab = kColumns * kSlabRow;  // bytes
constexpr int kRowBytes = slabs_before(kProducts) * kRowSlab,
              kStageBytes = slabs_before(kOperands) * kTileSlab;
constexpr int kRegisters = 240, kCopyRegisters = 24;
static_assert(kGroups == 2 && kFragments == 1, "");

/// Shared addresses. Barriers of rows and of stages: bytes have come (full), all warps have read them
/// (empty). item: the block of rows at hand, -1 when there are no more.
struct PairMemory {
  uint32 x, y, x_full, x_empty, full, empty, item;
  __device__ __forceinline__ PairMemory() {
    x = (shared_base() + 1023) & ~1023u;  // the period of the permutation
    y = x + kRowBytes;
    x_full = y + kStages * kStageBytes;
    x_empty = x_full + 8;
    full = x_empty + 8;
    empty = full + 8 * kStages;
    item = empty + 8 * kStages;
  }
  __device__ __forceinline__ void begin() const {
    barrier_init(x_full, 1);
    barrier_init(x_empty, kWarps);
#pragma unroll
    for (int s = 0; s < kStages; ++s) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, kWarps);
    }
    fence_barriers();
  }
};

/// A block of rows of a matrix. Matrices are taken in groups, so that those whose operands are in the second
/// cache are read together; within a group those blocks come first that have more tiles where a mask is
/// causal.
struct PairItem {
  int b, row0;
  __device__ __forceinline__ PairItem(const Args& args, int item) {
    const int group = args.parts.group, blocks = args.shape.blocks;
    const int first = item / (group * blocks) * group;
    const int members = args.shape.batch - first < group ? args.shape.batch - first : group;
    const int at = item - first * blocks, block = at / members;
    b = first + at - block * members;
    row0 = (Config::kFirst ? block : blocks - 1 - block) * kRows;
  }
};

constexpr int x_rank(int p) { return p == 0 ? Config::kXRank0 : Config::kXRank1; }
constexpr int y_rank(int o) { return o == 0 ? Config::kYRank0 : Config::kYRank1; }

/// Orders copies of an operand's rows; `which`: its number in args.parts.
template <int Rank, int Slabs>
__device__ __forceinline__ void copy_rows(const Args& args, const TensorMap& map, int which, int b, int row,
                                          uint32 to, int slab, uint32 full) {
  int c[Rank];
  c[1] = row;
#pragma unroll
  for (int p = 0; p < Rank - 2; ++p)
    c[2 + p] = b / args.parts.divisor[which][p] % args.parts.extent[which][p];
#pragma unroll
  for (int s = 0; s < Slabs; ++s) {
    c[0] = 64 * s;
    copy_box(to + s * slab, map, c, full);
  }
}

/// By one whole warp, of which one lane orders copies.
__device__ __forceinline__ void produce(const Args& args, const PairMemory& memory) {
  const bool orders = threadIdx.x == 0;
  PairTiles tile(args);
  Turn at;
  uint32 x_parity = 1;
  for (int item = blockIdx.x;; x_parity ^= 1) {
    barrier_wait(memory.x_empty, x_parity);
    if (item >= args.parts.items) {
      if (orders) {
        store_shared(memory.item, uint32(-1));
        barrier_arrive(memory.x_full);
      }
      return;
    }
    const PairItem rows(args, item);
    if (orders) {
      store_shared(memory.item, uint32(item));
      barrier_expect(memory.x_full, kRowBytes);
      each<kProducts>([&](auto p) {
        constexpr int kP = decltype(p)::value;
        copy_rows<x_rank(kP), slabs_of(kP)>(args, kP == 0 ? args.a_map : args.b_map[0], kP, rows.b, rows.row0,
                                            memory.x + slabs_before(kP) * kRowSlab, kRowSlab, memory.x_full);
      });
    }
    const int after = next_item(args);
    tile.begin(rows.b, rows.row0);
#pragma unroll 1
    for (int low = 0; low <= Config::kLow; ++low) {
      int kind;
      if constexpr (Config::kLow) {
        if (low == 1 &&
            !(tile.before(args.shape.columns, true, kind) >= 0 && meet_or<kWalkers>(kVote, false)))
          break;
      }
      for (int c0 = args.shape.columns; (c0 = tile.before(c0, low == 1, kind)) >= 0;) {
        const uint32 full = memory.full + 8 * at.stage;
        barrier_wait(memory.empty + 8 * at.stage, at.parity ^ 1);
        if (orders) {
          barrier_expect(full, kStageBytes);
          each<kOperands>([&](auto o) {
            constexpr int kO = decltype(o)::value;
            copy_rows<y_rank(kO), slabs_of(kO)>(
                args, args.b_map[1 + kO], 2 + kO, rows.b, c0,
                memory.y + at.stage * kStageBytes + slabs_before(kO) * kTileSlab, kTileSlab, full);
          });
        }
        at.next();
      }
    }
    item = after;
  }
}

struct PairGroup {
  const Args& args;
  const PairMemory& memory;
  int group;
  PairTiles tile;
  PairRows rows;
  Turn turn;  // the stage whose products come next
  Products s;
  Weights w[kColumns / 16];

  /// After the last product that reads them: the copy engine may write to the stage again.
  __device__ __forceinline__ void release(uint32 empty) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(empty);
  }

  __device__ __forceinline__ void order_products() {
    each<kProducts>([&](auto p) {
      constexpr int kP = decltype(p)::value;
      const uint64 x = tile_descriptor<true>(memory.x + slabs_before(kP) * kRowSlab + group * 64 * kSlabRow,
                                             0),
                   y = tile_descriptor<true>(
                       memory.y + turn.stage * kStageBytes + slabs_before(kP) * kTileSlab, 0);
#pragma unroll
      for (int step = 0; step < (depth_of(kP) + 15) / 16; ++step) {
        const int part = step % 4 * 2;
        group_multiply_add<0, 0>(s[kP][0], x + (step / 4 * (kRowSlab >> 4) + part),
                                 y + (step / 4 * (kTileSlab >> 4) + part), step > 0, Element());
      }
    });
  }

  __device__ __forceinline__ void order_sums(int stage) {
    each<kSums>([&](auto m) {
      constexpr int kM = decltype(m)::value, kO = operand_of(kM);
      const uint64 z =
          tile_descriptor<false>(memory.y + stage * kStageBytes + slabs_before(kO) * kTileSlab, kTileSlab);
#pragma unroll
      for (int step = 0; step < kColumns / 16; ++step)
#pragma unroll
        for (int p = 0; p < kPieces; ++p)
          group_multiply_add<1>(
              rows.sum[kM][0][p], w[step][kM][0],
              z + (step * (16 * kSlabRow >> 4) + p * (Config::kPiece / 64) * (kTileSlab >> 4)), 1, Element());
    });
  }

  /// After products have been waited for: the compiler may read them now.
  __device__ __forceinline__ void end_products() {
#pragma unroll
    for (int p = 0; p < kProducts; ++p)
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) pin(s[p][0][i]);
    turn.next();
  }
  /// The same of sums; the copy engine may write to their stage again.
  __device__ __forceinline__ void end_sums(int stage) {
#pragma unroll
    for (int m = 0; m < kSums; ++m)
#pragma unroll
      for (int p = 0; p < kPieces; ++p)
#pragma unroll
        for (int i = 0; i < 4 * kPieceTiles; ++i) pin(rows.sum[m][0][p][i]);
    release(memory.empty + 8 * stage);
  }

  template <bool Whole>
  __device__ __forceinline__ void weigh(int c0) {
#pragma unroll
    for (int step = 0; step < kColumns / 16; ++step) rows.weigh<Whole>(s, c0, step, w[step]);
  }

  /// Tiles of one pass. `last`: the operands of rows are not read again.
  __device__ __forceinline__ void tiles(bool low, bool last) {
    int kind;
    int c0 = tile.before(args.shape.columns, low, kind);
    if (c0 < 0) {
      if (last) release(memory.x_empty);
      return;
    }
    int stage = turn.stage;
    barrier_wait(memory.full + 8 * stage, turn.parity);
    products_fence();
    order_products();
    products_commit();
    products_wait<0>();
    end_products();
    weigh<false>(c0);
    while ((c0 = tile.before(c0, low, kind)) >= 0) {
      const int next = turn.stage;
      barrier_wait(memory.full + 8 * next, turn.parity);
      meet<256>(kTurns + group);
      products_fence();
      order_sums(stage);
      order_products();
      products_commit();
      let_pass<256>(kTurns + (group + 1) % kGroups);
      products_wait<0>();
      end_sums(stage);
      end_products();
      stage = next;
      if (!Config::kMasks || kind == kWhole)  // without masks only the first tile may be ragged
        weigh<true>(c0);
      else
        weigh<false>(c0);
    }
    if (last) release(memory.x_empty);
    products_fence();
    order_sums(stage);
    products_commit();
    products_wait<0>();
    end_sums(stage);
  }
};

__device__ __forceinline__ void consume(const Args& args, const PairMemory& memory) {
  PairGroup x{args, memory, int(threadIdx.x / 128) - 1, PairTiles(args),
              PairRows(args, int(threadIdx.x / 32) - 4)};
  uint32 x_parity = 0;
  if (x.group == kGroups - 1) let_pass<256>(kTurns);
  for (;; x_parity ^= 1) {
    barrier_wait(memory.x_full, x_parity);
    const int item = int(load_shared(memory.item));
    if (item < 0) return;
    const PairItem at(args, item);
    x.tile.begin(at.b, at.row0);
    x.rows.begin(at.b, at.row0);
    // Low tiles come last, and only where they add something. One loop, so that its body is compiled once.
#pragma unroll 1
    for (int low = 0; low <= Config::kLow; ++low) {
      if constexpr (Config::kLow) {
        int kind;
        if (low == 1 && !(x.tile.before(args.shape.columns, true, kind) >= 0 &&
                          meet_or<kWalkers>(kVote, !x.rows.low_adds_nothing())))
          break;
      }
      x.tiles(low == 1, !Config::kLow);
    }
    if (Config::kLow) x.release(memory.x_empty);
    x.rows.write();
  }
}

__device__ __forceinline__ void run_pair_sums(const Args& args) {
  const PairMemory memory;
  if (threadIdx.x == 0) {
    prefetch_map(args.a_map);
#pragma unroll
    for (int m = 0; m < 3; ++m) prefetch_map(args.b_map[m]);
    memory.begin();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    give_registers<kCopyRegisters>();
    if (threadIdx.x < 32) produce(args, memory);
  } else {
    take_registers<kRegisters>();
    consume(args, memory);
  }
}
