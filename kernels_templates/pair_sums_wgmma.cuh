// Sums over pairs on Hopper: the copy engine fills stages of shared memory with tiles of the operands of
// columns; warpgroups, each with 64 rows of the block, multiply out of them. One warp orders the copies and
// makes the values of columns. A block takes blocks of rows until none are left, so that copies for the next
// one run while this one's results are written. That warp says which rows and tiles beside its copies; nobody
// else walks over tiles.
//
// What the weights of a tile add is ordered together with the next tile's products, the last of these when
// the weights have been read. Making weights begins with what the first product alone gives (kEarly), while
// the last products run; the other warpgroup's products run beside it, too. Turns, as attention_wgmma has
// them, made no difference here.
//
// A sum over rows may be made beside those over columns (kAdds): weights of a tile, as one of the sums has
// them, go to shared memory too, and what they add to columns is multiplied from there and added in memory,
// where other blocks add to the same columns. Both warpgroups meet once a tile for it.
#pragma once

constexpr int slabs_of(int operand) { return (depth_of(operand) + 63) / 64; }
constexpr int slabs_before(int operand) {
  int total = 0;
  for (int o = 0; o < operand; ++o) total += slabs_of(o);
  return total;
}
constexpr int kXStages = Config::kXStages;
typedef TurnOf<kXStages> XTurn;
constexpr int kRowSlab = kRows * kSlabRow, kTileSlab = kColumns * kSlabRow;  // bytes
constexpr int kRowBytes = slabs_before(kProducts) * kRowSlab,
              kStageBytes = slabs_before(kOperands) * kTileSlab;
// Of the sum over rows: columns that a warpgroup multiplies; its weights, of two tiles in turn.
constexpr int kAddPiece = Config::kAdds ? slabs_of(Config::kAddX) * 64 / kGroups : 64,
              kAddBytes = Config::kAdds ? kRowSlab : 0,
              kStagedBytes = Config::kAdds ? kColumns * kAddPiece * 4 : 0;
static_assert(!Config::kAdds || (kGroups == 2 && kColumns == 64 && 64 % kAddPiece == 0), "");
// Whether the products of the next tile run beside what this one's weights add: where all of that fits.
constexpr bool kAhead =
    Config::kAdds && kXStages > 1 &&
    kSums*(kPieces * 4 * kPieceTiles + kColumns / 4) + kProducts* kColumns / 2 + kAddPiece / 2 <= 184;
constexpr int kMeet = kVote + 1;  // named barriers: of both warpgroups, and behind it of each
// Registers of all groups are those that the launch has: 2 x 232 + 40 = 3 x 168.
constexpr int kRegisters = kGroups == 1      ? 232
                           : Config::kChecks ? 224
                           : kXStages > 1    ? 232
                                             : 240,
              kCopyRegisters = Config::kChecks                ? 56
                               : kGroups == 2 && kXStages > 1 ? 40
                                                              : 24;
static_assert(kGroups <= 2 && kFragments == 1 && kProducts <= 2 && kOperands <= 2, "");
static_assert(kGroups == 2 || !Config::kChecks, "");

/// Shared addresses. Barriers of rows and of stages: bytes have come (full), all warps have read them
/// (empty). Rows have stages of their own (kXStages), each with what is said of its block (item). values:
/// those of columns, of each stage. notes: of each stage. added: weights of the sum over rows; staged: what
/// is added to it.
struct PairMemory {
  uint32 x, y, added, staged, values, x_full, x_empty, full, empty, item, notes;
  __device__ __forceinline__ PairMemory() {
    x = (shared_base() + 1023) & ~1023u;  // the period of the permutation
    y = x + kXStages * kRowBytes;
    added = y + kStages * kStageBytes;
    staged = added + 2 * kAddBytes;
    values = staged + kGroups * kStagedBytes;
    x_full = values + kStages * kValueBytes;
    x_empty = x_full + 8 * kXStages;
    full = x_empty + 8 * kXStages;
    empty = full + 8 * kStages;
    item = empty + 8 * kStages;
    notes = item + 8 * kXStages;
  }
  __device__ __forceinline__ void begin() const {
#pragma unroll
    for (int s = 0; s < kXStages; ++s) {
      barrier_init(x_full + 8 * s, 1);
      barrier_init(x_empty + 8 * s, kWarps);
    }
#pragma unroll
    for (int s = 0; s < kStages; ++s) {
      barrier_init(full + 8 * s, kColumnValues > 0 ? 2 : 1);
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

/// Whether what the weights of a block of rows multiply in the sum over rows is finite; by a whole warp.
template <class A>
__device__ __forceinline__ bool rows_are_finite(const A& args, const PairItem& rows) {
  const int r = rows.row0 + int(threadIdx.x % 32) * kFlagColumns;
  const bool looks = threadIdx.x % 32 < kRows / kFlagColumns && r < args.shape.rows;
  return __all_sync(0xffffffffu, !looks || row_is_finite(args, rows.b, r / kFlagColumns));
}

/// Of the operands of columns.
struct PairPlaces {
  MatrixPlace<y_rank(0)> first;
  MatrixPlace<kOperands == 2 ? y_rank(1) : 2> second;  // of rank 2: nothing is found
  __device__ __forceinline__ PairPlaces(const Args& args, int b) : first(args, 2, b), second(args, 3, b) {}
  __device__ __forceinline__ const auto& of(Number<0>) const { return first; }
  __device__ __forceinline__ const auto& of(Number<1>) const { return second; }
};

/// By one whole warp, of which one lane orders copies.
struct PairCopies {
  const Args& args;
  const PairMemory& memory;
  PairTiles tile;
  Turn at;
  XTurn x_turn;

  __device__ __forceinline__ bool orders() const { return threadIdx.x == 0; }

  __device__ __forceinline__ void copy_block(const PairItem& rows, bool has_tiles) const {
    const uint32 said = memory.item + 8 * x_turn.stage, full = memory.x_full + 8 * x_turn.stage;
    store_shared(said, uint32(rows.b));
    store_shared(said + 4, rows_note(rows.row0, has_tiles, false));
    barrier_expect(full, kRowBytes);
    each<kProducts>([&](auto p) {
      constexpr int kP = decltype(p)::value;
      copy_rows<slabs_of(kP)>(kP == 0 ? args.a_map : args.b_map[0], MatrixPlace<x_rank(kP)>(args, kP, rows.b),
                              rows.row0, memory.x + x_turn.stage * kRowBytes + slabs_before(kP) * kRowSlab,
                              kRowSlab, full);
    });
  }

  __device__ __forceinline__ void copy_tile(const PairPlaces& places, int c0, int kind, bool last) {
    const uint32 full = memory.full + 8 * at.stage;
    barrier_wait(memory.empty + 8 * at.stage, at.parity ^ 1);
    if (orders()) {
      store_shared(memory.notes + 8 * at.stage, tile_note(c0, kind, last));
      barrier_expect(full, kStageBytes);
      each<kOperands>([&](auto o) {
        constexpr int kO = decltype(o)::value;
        copy_rows<slabs_of(kO)>(args.b_map[1 + kO], places.of(o), c0,
                                memory.y + at.stage * kStageBytes + slabs_before(kO) * kTileSlab, kTileSlab,
                                full);
      });
    }
    if constexpr (kColumnValues > 0) {
      store_column_values(args, tile.b, c0, memory.values + at.stage * kValueBytes);
      __syncwarp();
      if (orders()) barrier_arrive(full);
    }
    at.next();
  }

  /// Whether low tiles add something: a row has weights there that are not 0.
  __device__ __forceinline__ bool low_matters(const PairItem& rows) const {
    bool nothing = true;
    for (int r = rows.row0 + int(threadIdx.x % 32); r < rows.row0 + kRows && r < args.shape.rows; r += 32)
      nothing = nothing && adds_nothing(args, rows.b, r);
    return !__all_sync(0xffffffffu, nothing);
  }

  __device__ __forceinline__ void run() {
    for (int item = blockIdx.x;; x_turn.next()) {
      barrier_wait(memory.x_empty + 8 * x_turn.stage, x_turn.parity ^ 1);
      if (item >= args.parts.items) {
        if (orders()) {
          store_shared(memory.item + 8 * x_turn.stage, uint32(-1));
          barrier_arrive(memory.x_full + 8 * x_turn.stage);
        }
        return;
      }
      const PairItem rows(args, item);
      const PairPlaces places(args, rows.b);
      bool keeps_low = false;
      if constexpr (Config::kAdds && Config::kLow) keeps_low = !rows_are_finite(args, rows);
      tile.begin(rows.b, rows.row0, keeps_low);
      int kind, after_kind;
      const bool has_low =
          Config::kLow && tile.before(args.shape.columns, true, kind) >= 0 && low_matters(rows);
      int c0 = tile.before(args.shape.columns, false, kind);
      if (kAhead && c0 < 0 && !has_low) {
        c0 = 0;
        kind = kMixed;
      }
      if (orders()) copy_block(rows, c0 >= 0 || has_low);
      const uint32 following = ask_item(args);
#pragma unroll 1
      for (int low = 0; low <= Config::kLow; ++low) {
        if constexpr (Config::kLow) {
          if (low == 1) {
            if (!has_low) break;
            c0 = tile.before(args.shape.columns, true, kind);
          }
        }
        while (c0 >= 0) {
          const int after = tile.before(c0, low == 1, after_kind);
          copy_tile(places, c0, kind, after < 0 && (low == 1 || !has_low));
          c0 = after;
          kind = after_kind;
        }
      }
      item = asked_item(args, following);
    }
  }
};

/// By the warps beside the one that copies: of each operand that weights multiply, and what columns add.
template <class A>
__device__ __forceinline__ void check(const A& args) {
  check_tiles(args, [&](int b, int c0, int c1, int lane) {
    const int64* const rows = args.shape.y_row;
    bool odd = false;
    if constexpr (multiplies(0)) odd |= has_odd<32, kCheckAhead>(y_matrix0(args, b), rows[0], c0, c1, lane);
    if constexpr (multiplies(1)) odd |= has_odd<32, kCheckAhead>(y_matrix1(args, b), rows[1], c0, c1, lane);
    for (int c = c0 + lane; c < c1; c += 32) odd = odd || !column_adds_nothing(args, b, c);
    return odd;
  });
}

struct PairGroup {
  const Args& args;
  const PairMemory& memory;
  int group;
  PairRows rows;
  Turn turn;  // the stage whose products come next
  XTurn x_turn;
  Products s;
  Weights w[kColumns / 16];
  int matrix;         // of the block of rows at hand; -1: there is none
  uint32 item, note;  // what is said of it, and of the tile at hand
  uint32 added = 0;   // which of both places has the weights of the tile at hand

  /// After the last product that reads them: the copy engine may write to the stage again.
  __device__ __forceinline__ void release(uint32 empty) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(empty);
  }

  __device__ __forceinline__ uint32 x_rows() const { return memory.x + x_turn.stage * kRowBytes; }

  /// Orders product P of the tile at hand.
  template <int P>
  __device__ __forceinline__ void order_product() {
    const uint64 x = tile_descriptor<true>(x_rows() + slabs_before(P) * kRowSlab + group * 64 * kSlabRow, 0),
                 y = tile_descriptor<true>(memory.y + turn.stage * kStageBytes + slabs_before(P) * kTileSlab,
                                           0);
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) forget(s[P][0][i]);
#pragma unroll
    for (int step = 0; step < (depth_of(P) + 15) / 16; ++step) {
      const int part = step % 4 * 2;
      group_multiply_add<0, 0>(s[P][0], x + (step / 4 * (kRowSlab >> 4) + part),
                               y + (step / 4 * (kTileSlab >> 4) + part), step > 0, Element());
    }
  }

  /// After products have been waited for: the compiler may read them now.
  __device__ __forceinline__ void end_products(int first, int end) {
#pragma unroll
    for (int p = first; p < end; ++p)
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) pin(s[p][0][i]);
  }

  /// The same of sums.
  __device__ __forceinline__ void end_sums() {
#pragma unroll
    for (int m = 0; m < kSums; ++m)
#pragma unroll
      for (int p = 0; p < kPieces; ++p)
#pragma unroll
        for (int i = 0; i < 4 * kPieceTiles; ++i) pin(rows.sum[m][0][p][i]);
  }

  /// Orders what the weights of a tile add.
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

  template <bool Whole>
  __device__ __forceinline__ void weigh_early(int c0, uint32 values) {
#pragma unroll
    for (int step = 0; step < kColumns / 16; ++step) rows.weigh_early<Whole>(s, c0, step, values);
  }
  template <bool Whole>
  __device__ __forceinline__ void weigh(int c0, uint32 values) {
#pragma unroll
    for (int step = 0; step < kColumns / 16; ++step) rows.weigh<Whole>(s, c0, step, values, w[step]);
  }
  __device__ __forceinline__ void weigh_early(int kind, int c0, uint32 values) {
    if (kind == kWhole)
      weigh_early<true>(c0, values);
    else
      weigh_early<false>(c0, values);
  }
  __device__ __forceinline__ void weigh(int kind, int c0, uint32 values) {
    if (kind == kWhole)
      weigh<true>(c0, values);
    else
      weigh<false>(c0, values);
  }

  /// Weights of the tile at hand, those of rows that exist, to shared memory: rows of 64 columns.
  __device__ __forceinline__ void share_weights() const {
    const int lane = threadIdx.x % 32, row = rows.warp * 16 + lane / 4;
    const bool there[2] = {rows.row0 + row < args.shape.rows, rows.row0 + row + 8 < args.shape.rows};
    const uint32 to = memory.added + added * kAddBytes + row * kSlabRow + lane % 4 * 4;
#pragma unroll
    for (int step = 0; step < kColumns / 16; ++step)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        store_shared(to + e % 2 * 8 * kSlabRow + (((2 * step + e / 2) ^ row % 8) << 4),
                     there[e % 2] ? w[step][Config::kAddWeight][0][e] : 0);
    fence_shared_writes();
  }
  /// Orders what they add to columns.
  __device__ __forceinline__ void order_added(float (&sum)[kAddPiece / 2]) const {
    const int column = group * kAddPiece;
    const uint64 weights = tile_descriptor<false>(memory.added + added * kAddBytes, 0),
                 x = tile_descriptor<false>(
                     x_rows() + (slabs_before(Config::kAddX) + column / 64) * kRowSlab + column % 64 * 2,
                     kRowSlab);
#pragma unroll
    for (int i = 0; i < kAddPiece / 2; ++i) forget(sum[i]);
#pragma unroll
    for (int step = 0; step < kRows / 16; ++step)
      group_multiply_add<1, 1>(sum, weights + step * (16 * kSlabRow >> 4), x + step * (16 * kSlabRow >> 4),
                               step > 0, Element());
  }
  __device__ __forceinline__ bool adds() const { return threadIdx.x % 128 == 0; }  // for its warpgroup
  /// To the memory of the tile at c0, by way of shared memory, whose place is free: number by number of the
  /// warpgroup's threads.
  template <class A>
  __device__ __forceinline__ void add(const A& args, float (&sum)[kAddPiece / 2], int c0) const {
    const uint32 from = memory.staged + group * kStagedBytes;
#pragma unroll
    for (int i = 0; i < kAddPiece / 2; ++i) pin(sum[i]);
#pragma unroll
    for (int n = 0; n < kAddPiece / 8; ++n)
      store_shared(from + (n * 128 + threadIdx.x % 128) * 16,
                   uint4{__float_as_uint(sum[4 * n]), __float_as_uint(sum[4 * n + 1]),
                         __float_as_uint(sum[4 * n + 2]), __float_as_uint(sum[4 * n + 3])});
    fence_shared_writes();
    meet<128>(kMeet + 1 + group);
    if (adds())
      add_block(added_to(args, rows.b, c0 / kColumns) + group * (kStagedBytes / 4), from, kStagedBytes);
  }

  /// Waits for the operands of the next tile and what is said of it.
  __device__ __forceinline__ void next_tile() {
    barrier_wait(memory.full + 8 * turn.stage, turn.parity);
    note = noted(memory.notes + 8 * turn.stage);
  }
  __device__ __forceinline__ int column0() const { return note & kNoted; }
  __device__ __forceinline__ uint32 values() const { return fresh(memory.values + turn.stage * kValueBytes); }

  /// Orders the products of the tile at hand, in two groups.
  __device__ __forceinline__ void order_all_products() {
    products_fence();
    order_product<0>();
    products_commit();
    each<kProducts>([&](auto p) {
      if constexpr (decltype(p)::value > 0) order_product<decltype(p)::value>();
    });
    products_commit();
  }
  /// The products become weights, which go to shared memory; orders what they add, in two groups.
  __device__ __forceinline__ void order_all_sums(float (&sum)[kAddPiece / 2]) {
    weigh(note & 3, column0(), values());
    share_weights();
    if (adds()) added_blocks_read();
    meet<256>(kMeet);
    products_fence();
    order_added(sum);
    products_commit();
    order_sums(turn.stage);
    products_commit();
  }

  /// Tiles of a block of rows, with the sum over rows. Nothing runs across tiles: that does not fit
  /// registers.
  template <class A>
  __device__ __forceinline__ void adding_tiles(const A& args) {
#pragma unroll 1
    for (note = 0; !(note & kLastTile);) {
      next_tile();
      order_all_products();
      products_wait<1>();
      end_products(0, 1);
      if constexpr (Config::kEarly) weigh_early(note & 3, column0(), values());
      products_wait<0>();
      end_products(1, kProducts);
      float sum[kAddPiece / 2];
      order_all_sums(sum);
      products_wait<0>();
      end_sums();
      release(memory.empty + 8 * turn.stage);
      add(args, sum, column0());
      added ^= 1;
      turn.next();
    }
  }

  /// Tiles of a block of rows. Each product stands once in this text: where there are two, the assembler
  /// waits for each of them.
  __device__ __forceinline__ void tiles() {
    int stage = -1;  // of the tile before
#pragma unroll 1
    for (note = 0;;) {
      const bool more = !(note & kLastTile);
      if (more) {
        barrier_wait(memory.full + 8 * turn.stage, turn.parity);
        note = noted(memory.notes + 8 * turn.stage);
      }
      if (stage >= 0) {
        products_fence();
        order_sums(stage);
        products_commit();
      }
      if (!more) break;
      const int c0 = note & kNoted, kind = note & 3;
      const uint32 values = fresh(memory.values + turn.stage * kValueBytes);
      products_fence();
      order_product<0>();
      products_commit();
      products_wait<1>();
      if (stage >= 0) release(memory.empty + 8 * stage);
      products_fence();
      each<kProducts>([&](auto p) {
        if constexpr (decltype(p)::value > 0) order_product<decltype(p)::value>();
      });
      products_commit();
      products_wait<1>();
      if constexpr (Config::kEarly) {
        end_products(0, 1);
        weigh_early(kind, c0, values);
        products_wait<0>();
        end_products(1, kProducts);
      } else {
        products_wait<0>();
        end_products(0, kProducts);
      }
      weigh(kind, c0, values);
      stage = turn.stage;
      turn.next();
    }
    products_wait<0>();
    end_sums();
    if (stage >= 0) release(memory.empty + 8 * stage);
  }

  /// Waits for what is said of the next block of rows.
  __device__ __forceinline__ void next_item() {
    barrier_wait(memory.x_full + 8 * x_turn.stage, x_turn.parity);
    const uint32 said = memory.item + 8 * x_turn.stage;
    matrix = int(noted(said));
    item = noted(said + 4);
  }
  __device__ __forceinline__ bool has_tiles() const { return matrix >= 0 && item & kHasTiles; }

  /// Blocks of rows, one after the other.
  __device__ __forceinline__ void run() {
    next_item();
#pragma unroll 1
    while (matrix >= 0) {
      rows.begin(matrix, int(item & kNoted));
      if (has_tiles()) {
        if constexpr (Config::kAdds)
          adding_tiles(args);
        else
          tiles();
      }
      release(memory.x_empty + 8 * x_turn.stage);
      rows.write();
      x_turn.next();
      next_item();
    }
    if constexpr (Config::kAdds)
      if (adds()) added_blocks_end();
  }

  /// The next tile of the block of rows, or the first one of the next block, if there is any.
  __device__ __forceinline__ void next_tile(bool of_next_block) {
    if (of_next_block) {
      x_turn.next();
      next_item();
      if (matrix < 0) return;
    }
    next_tile();
  }

  /// The same where the products of the next tile, perhaps of the next block, fit beside what a tile's
  /// weights add: they run while that is added in memory, and while results are written. Each block has tiles
  /// then.
  template <class A>
  __device__ __forceinline__ void run_ahead(const A& args) {
    next_item();
    if (matrix < 0) return;
    rows.begin(matrix, int(item & kNoted));
    next_tile();
    order_all_products();
    products_wait<1>();
    end_products(0, 1);
#pragma unroll 1
    for (;;) {
      if constexpr (Config::kEarly) weigh_early(note & 3, column0(), values());
      products_wait<0>();
      end_products(1, kProducts);
      float sum[kAddPiece / 2];
      order_all_sums(sum);
      const int c0 = column0();
      const bool ends = note & kLastTile;
      turn.next();
      next_tile(ends);
      order_all_products();  // of anything, where there is no tile: a branch would make all products wait
      products_wait<2>();
      end_sums();
      release(memory.empty + 8 * turn.before());
      add(args, sum, c0);
      added ^= 1;
      if (ends) {
        release(memory.x_empty + 8 * x_turn.before());
        rows.write();
        if (matrix >= 0) rows.begin(matrix, int(item & kNoted));
      }
      products_wait<1>();
      end_products(0, 1);
      if (matrix < 0) break;
    }
    products_wait<0>();
    if (adds()) added_blocks_end();
  }
};

__device__ __forceinline__ void run_pair_sums(const Args& args) {
  if constexpr (Config::kChecks)
    if (args.parts.again && !finds_flag(args)) return;
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
    if (threadIdx.x < 32) {
      PairCopies copies{args, memory, PairTiles(args)};
      copies.run();
    } else if constexpr (Config::kChecks) {
      if (!args.parts.again) check(args);
    }
  } else {
    take_registers<kRegisters>();
    // from one lane, so that what is made of it is in registers of the warp
    const int warp = __shfl_sync(0xffffffffu, int(threadIdx.x / 32), 0);
    PairGroup group{args, memory, warp / 4 - 1, PairRows(args, warp - 4)};
    if constexpr (kAhead)
      group.run_ahead(args);
    else
      group.run();
  }
}
