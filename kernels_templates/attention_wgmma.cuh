// Attention on Hopper: the copy engine fills stages of shared memory with tiles of k and v; warpgroups, each
// with 64 rows of the block, multiply out of them. One warp orders the copies. A block takes blocks of rows
// until none are left, so that copies for the next one run while this one's results are written. That warp
// says which rows and tiles, and what masks leave of them, beside its copies; nobody else walks over tiles.
// The warps beside it look for values of v that are not finite.
//
// Within a warpgroup, the products of the next tile's scores and of this tile's weights are under way
// together, and while they run the next tile's scores become weights as soon as they are there. The
// warpgroups take turns in ordering products, so that one's exponentials run beside the other's products.
// Where a block of rows has few tiles, a block has one warpgroup, and two blocks share a multiprocessor.
#pragma once

constexpr int kDepthSlabs = (Config::kHead + 63) / 64, kWidthSlabs = (Config::kOut + 63) / 64;
constexpr int kQStages = Config::kQStages;
typedef TurnOf<kQStages> QTurn;
constexpr int kQSlab = kRows * kSlabRow, kTileSlab = kColumns * kSlabRow;  // bytes
constexpr int kQBytes = kDepthSlabs * kQSlab, kKBytes = kDepthSlabs * kTileSlab,
              kVBytes = kWidthSlabs * kTileSlab;
constexpr int kRegisters = kGroups < 3 ? 232 : 160, kCopyRegisters = kGroups == 1   ? 24
                                                                     : kGroups == 2 ? 40
                                                                                    : 32;

/// Words that the copying warp writes for each stage of k: the tile's note, then, of tiles that are not
/// whole, for each eight warps bits of parts that are low, and of those that are whole: part p of warp w has
/// bit w % 8 * 4 + p.
constexpr uint32 kGroupParts = ((1 << kColumns / kPart) - 1) * 0x1111;  // of four warps
constexpr int kParts = kColumns / kPart, kNotes = 1 + 2 * ((kWarps + 7) / 8), kNoteBytes = 32;
static_assert(kParts <= 4 && kNotes * 4 <= kNoteBytes && kFragments == 1, "");

/// Shared addresses. Barriers of q and of stages: bytes have come (full), all warps have read them (empty). q
/// has stages of its own (kQStages), each with what is said of its block of rows (item).
struct AttentionMemory {
  uint32 q, k, v, q_full, q_empty, k_full, k_empty, v_full, v_empty, item, notes;
  __device__ __forceinline__ AttentionMemory() {
    q = (shared_base() + 1023) & ~1023u;  // the period of the permutation
    k = q + kQStages * kQBytes;
    v = k + kStages * kKBytes;
    q_full = v + kStages * kVBytes;
    q_empty = q_full + 8 * kQStages;
    k_full = q_empty + 8 * kQStages;
    k_empty = k_full + 8 * kStages;
    v_full = k_empty + 8 * kStages;
    v_empty = v_full + 8 * kStages;
    item = v_empty + 8 * kStages;
    notes = item + 8 * kQStages;
  }
  __device__ __forceinline__ void begin() const {
#pragma unroll
    for (int s = 0; s < kQStages; ++s) {
      barrier_init(q_full + 8 * s, 1);
      barrier_init(q_empty + 8 * s, kWarps);
    }
#pragma unroll
    for (int s = 0; s < kStages; ++s) {
      barrier_init(k_full + 8 * s, 1);
      barrier_init(k_empty + 8 * s, kWarps);
      barrier_init(v_full + 8 * s, 1);
      barrier_init(v_empty + 8 * s, kWarps);
    }
    fence_barriers();
  }
};

/// A block of rows of a matrix. Matrices are taken in groups, so that those whose k and v are in the second
/// cache are read together; within a group later rows come first, since a causal attention has more tiles
/// there.
struct AttentionItem {
  int b, row0;
  __device__ __forceinline__ AttentionItem(const Args& args, int item) {
    const int group = args.parts.group, blocks = args.shape.blocks;
    const int first = item / (group * blocks) * group;
    const int members = args.shape.batch - first < group ? args.shape.batch - first : group;
    const int at = item - first * blocks, block = at / members;
    b = first + at - block * members;
    row0 = (blocks - 1 - block) * kRows;
  }
};

/// Says of a tile what AttentionTile reads, by a whole warp.
__device__ __forceinline__ void note_tile(const Args& args, uint32 to, const AttentionItem& rows, int j0,
                                          int kind, uint32 note) {
  const int lane = threadIdx.x % 32;
  if (lane == 0) store_shared(to, note);
  if constexpr (Config::kMasks) {
    if (kind == kWhole) return;
#pragma unroll
    for (int round = 0; round < kNotes / 2; ++round) {
      const int warp = 8 * round + lane / 4, part = lane % 4;
      const int of_part = part < kParts && warp < kWarps
                              ? part_kind(args, rows.b, rows.row0 + 16 * warp, j0 + kPart * part)
                              : kMixed;
      const uint32 low = __ballot_sync(0xffffffffu, of_part == kLow),
                   whole = __ballot_sync(0xffffffffu, of_part == kWhole);
      if (lane == 0) store_shared(to + 4 + 8 * round, low);
      if (lane == 0) store_shared(to + 8 + 8 * round, whole);
    }
  }
}

/// Of keys and of values.
struct AttentionPlaces {
  MatrixPlace<Config::kKRank> k;
  MatrixPlace<Config::kVRank> v;
  __device__ __forceinline__ AttentionPlaces(const Args& args, int b) : k(args, 1, b), v(args, 2, b) {}
};

/// Orders the copies of a tile's keys and values, whose slots are free by then.
__device__ __forceinline__ void produce_tile(const Args& args, const AttentionMemory& memory, const Turn& at,
                                             const AttentionItem& rows, const AttentionPlaces& places, int j0,
                                             int kind, uint32 note) {
  const bool orders = threadIdx.x == 0;
  const uint32 k_full = memory.k_full + 8 * at.stage, v_full = memory.v_full + 8 * at.stage;
  barrier_wait(memory.k_empty + 8 * at.stage, at.parity ^ 1);
  note_tile(args, memory.notes + at.stage * kNoteBytes, rows, j0, kind, note);
  if (orders) {
    barrier_expect(k_full, kKBytes);
    copy_rows<kDepthSlabs>(args.b_map[0], places.k, j0, memory.k + at.stage * kKBytes, kTileSlab, k_full);
  }
  barrier_wait(memory.v_empty + 8 * at.stage, at.parity ^ 1);
  if (orders) {
    barrier_expect(v_full, kVBytes);
    copy_rows<kWidthSlabs>(args.b_map[1], places.v, j0, memory.v + at.stage * kVBytes, kTileSlab, v_full);
  }
}

/// By one whole warp, of which one lane orders copies.
__device__ __forceinline__ void produce(const Args& args, const AttentionMemory& memory) {
  const bool orders = threadIdx.x == 0;
  PairTiles tile(args);
  Turn at;
  QTurn q_turn;
  for (int item = blockIdx.x;; q_turn.next()) {
    const uint32 said = memory.item + 8 * q_turn.stage, q_full = memory.q_full + 8 * q_turn.stage;
    barrier_wait(memory.q_empty + 8 * q_turn.stage, q_turn.parity ^ 1);
    if (item >= args.parts.items) {
      if (orders) {
        store_shared(said, uint32(-1));
        barrier_arrive(q_full);
      }
      return;
    }
    const AttentionItem rows(args, item);
    const AttentionPlaces places(args, rows.b);
    tile.begin(rows.b, rows.row0);
    int kind, after_kind;
    // Where low tiles are -inf, so are low parts of others.
    const bool leaves = Config::kLow && tile_greatest(args, rows.b) == minus_inf();
    // Low tiles have to be looked at if there are some, and not all of what they are is -inf.
    bool has_low = false;
    if constexpr (Config::kLow) has_low = !leaves && tile.before(args.shape.columns, true, kind) >= 0;
    int j0 = tile.before(args.shape.columns, false, kind);
    if (orders) {
      store_shared(said, uint32(rows.b));
      store_shared(said + 4, rows_note(rows.row0, j0 >= 0, has_low));
      barrier_expect(q_full, kQBytes);
      copy_rows<kDepthSlabs>(args.a_map, MatrixPlace<Config::kQRank>(args, 0, rows.b), rows.row0,
                             memory.q + q_turn.stage * kQBytes, kQSlab, q_full);
    }
    const uint32 following = ask_item(args);
#pragma unroll 1
    for (int low = 0; low <= Config::kLow; ++low) {
      if constexpr (Config::kLow) {
        if (low == 1) {
          if (!(has_low && meet_or<kWalkers>(kVote, false))) break;
          j0 = tile.before(args.shape.columns, true, kind);
        }
      }
      while (j0 >= 0) {
        const int after = tile.before(j0, low == 1, after_kind);
        const int end = j0 + kColumns < args.shape.columns ? j0 + kColumns : args.shape.columns;
        produce_tile(args, memory, at, rows, places, j0, kind,
                     tile_note(j0, kind, after < 0) | (low == 1 || !has_low ? kLastPass : 0) |
                         (leaves && kind == kMixed && tile.multiplies_finite(j0, end) ? kLeaves : 0));
        at.next();
        j0 = after;
        kind = after_kind;
      }
    }
    item = asked_item(args, following);
  }
}

/// By the warps beside the one that copies.
template <class A>
__device__ __forceinline__ void check(const A& args) {
  check_tiles(args, [&](int b, int c0, int c1, int lane) {
    return has_odd<32, kCheckAhead>(v_matrix(args, b), args.shape.v_row, c0, c1, lane);
  });
}

/// What a warp knows of a tile.
struct AttentionTile {
  uint32 word, low, whole;
  __device__ __forceinline__ void read(uint32 from, int warp) {
    word = noted(from);
    low = whole = 0;
    if constexpr (Config::kMasks) {
      if (kind() == kWhole) {
        whole = ~0u;
      } else {
        low = noted(from + 4 + warp / 8 * 8);
        if (~(low >> warp / 4 % 2 * 16) & kGroupParts) word &= ~kLeaves;
        low >>= warp % 8 * 4;
        whole = noted(from + 8 + warp / 8 * 8) >> warp % 8 * 4;
      }
    }
  }
  __device__ __forceinline__ int kind() const { return word & 3; }
  __device__ __forceinline__ bool last() const { return word & kLastTile; }
  __device__ __forceinline__ bool left_out() const { return Config::kLow && word & kLeaves; }
  __device__ __forceinline__ bool of_last_pass() const { return word & kLastPass; }
  __device__ __forceinline__ bool ends_q() const { return last() && of_last_pass(); }
  __device__ __forceinline__ int column0() const { return word & kNoted; }
  __device__ __forceinline__ int kind_of(int part) const {
    return whole >> part & 1 ? kWhole : low >> part & 1 ? kLow : kMixed;
  }
};

struct AttentionGroup {
  const Args& args;
  const AttentionMemory& memory;
  int group;
  AttentionRows rows;
  Turn k_turn, v_turn;
  QTurn q_turn;
  AttentionTile tile;
  int matrix;                        // of the block of rows at hand; -1: there is none
  uint32 note;                       // what is said of it
  bool absent;                       // none of the group's rows are there
  uint32 weights[kColumns / 16][4];  // operands of the second product

  /// After the last product that reads them: the copy engine may write to the stage again.
  __device__ __forceinline__ void release(uint32 empty) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(empty);
  }

  __device__ __forceinline__ void release_q() const { release(memory.q_empty + 8 * q_turn.stage); }

  __device__ __forceinline__ void order_scores(Scores& s) const {
    const uint64 q = tile_descriptor<true>(memory.q + q_turn.stage * kQBytes + group * 64 * kSlabRow, 0),
                 k = tile_descriptor<true>(memory.k + k_turn.stage * kKBytes, 0);
    products_fence();
#pragma unroll
    for (int step = 0; step < (Config::kHead + 15) / 16; ++step) {
      const int part = step % 4 * 2;
      group_multiply_add<0, 0>(s[0], q + (step / 4 * (kQSlab >> 4) + part),
                               k + (step / 4 * (kTileSlab >> 4) + part), step > 0, Element());
    }
    products_commit();
  }

  __device__ __forceinline__ void order_products() {
    const uint64 v = tile_descriptor<false>(memory.v + v_turn.stage * kVBytes, kTileSlab);
    products_fence();
#pragma unroll
    for (int step = 0; step < kColumns / 16; ++step)
#pragma unroll
      for (int p = 0; p < kPieces; ++p)
        group_multiply_add<1>(
            rows.sum[0][p], weights[step],
            v + (step * (16 * kSlabRow >> 4) + p * (Config::kPiece / 64) * (kTileSlab >> 4)), 1, Element());
    products_commit();
  }

  /// After products have been waited for: the compiler may read them now, the copy engine may write again.
  __device__ __forceinline__ void end_scores(Scores& s) {
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) pin(s[0][i]);
    release(memory.k_empty + 8 * k_turn.stage);
    k_turn.next();
    if (tile.ends_q()) release_q();
  }
  __device__ __forceinline__ void end_products() {
#pragma unroll
    for (int p = 0; p < kPieces; ++p)
#pragma unroll
      for (int i = 0; i < 4 * kPieceTiles; ++i) pin(rows.sum[0][p][i]);
    release(memory.v_empty + 8 * v_turn.stage);
    v_turn.next();
  }

  __device__ __forceinline__ void take_weights(const Scores& s) {
#pragma unroll
    for (int step = 0; step < kColumns / 16; ++step) rows.operand(s, 0, step, weights[step], Element{});
  }

  template <bool Whole>
  __device__ __forceinline__ void weigh(Scores& s) {
    rows.weigh<Whole>(s, tile.column0(), [&](int, int part) { return tile.kind_of(part); });
  }
  /// Waits for k of the next tile.
  __device__ __forceinline__ void next_tile() {
    barrier_wait(memory.k_full + 8 * k_turn.stage, k_turn.parity);
    tile.read(memory.notes + k_turn.stage * kNoteBytes, rows.warp);
  }
  /// Whether the tile at hand adds nothing to the group's rows.
  __device__ __forceinline__ bool left_out() const { return absent || tile.left_out(); }
  /// Leaves it out.
  __device__ __forceinline__ void leave_out() {
    barrier_wait(memory.v_full + 8 * k_turn.stage, k_turn.parity);
    release(memory.k_empty + 8 * k_turn.stage);
    release(memory.v_empty + 8 * k_turn.stage);
    k_turn.next();
    if (tile.last()) return;
    if constexpr (kGroups > 1) meet<256>(kTurns + group);
    if constexpr (kGroups > 1) let_pass<256>(kTurns + (group + 1) % kGroups);
  }
  /// Waits for k of the first tile of a pass that is not left out; whether there is one.
  __device__ __forceinline__ bool first_tile() {
    for (next_tile(); left_out(); next_tile()) {
      leave_out();
      if (tile.last()) return false;
    }
    return true;
  }
  /// Waits for what is said of the next block of rows.
  __device__ __forceinline__ void next_item() {
    barrier_wait(memory.q_full + 8 * q_turn.stage, q_turn.parity);
    const uint32 said = memory.item + 8 * q_turn.stage;
    matrix = int(noted(said));
    note = noted(said + 4);
    absent = int(note & kNoted) + 64 * group >= args.shape.rows;
  }

  /// Tiles of one pass, of which there are some; whether no further one reads q, which is released then.
  __device__ __forceinline__ bool tiles() {
    if (!first_tile()) return false;
    Scores s;
    order_scores(s);
    products_wait<0>();
    v_turn = k_turn;
    end_scores(s);
    weigh<false>(s);
    rows.rescale();
    take_weights(s);
    while (!tile.last()) {
      next_tile();
      if constexpr (kGroups > 1) meet<256>(kTurns + group);
      order_scores(s);
      barrier_wait(memory.v_full + 8 * v_turn.stage, v_turn.parity);
      order_products();
      if constexpr (kGroups > 1) let_pass<256>(kTurns + (group + 1) % kGroups);
      products_wait<1>();
      end_scores(s);
      // without masks only the first tile may be ragged
      if (is_plain(args) && (!Config::kMasks || tile.kind() == kWhole))
        weigh<true>(s);
      else
        weigh<false>(s);
      products_wait<0>();
      end_products();
      rows.rescale();
      take_weights(s);
    }
    barrier_wait(memory.v_full + 8 * v_turn.stage, v_turn.parity);
    order_products();
    products_wait<0>();
    end_products();
    return tile.of_last_pass();
  }

  /// Passes of a block of rows; one loop, so that their body is compiled once.
  __device__ __forceinline__ void passes() {
#pragma unroll 1
    for (bool has_tiles = note & kHasTiles;;) {
      if (has_tiles && tiles()) return;
      // Low tiles come last, and only where they add something.
      has_tiles = false;
      if constexpr (Config::kLow) {
        has_tiles =
            note & kHasLow && meet_or<kWalkers>(kVote, !rows.adds_nothing(tile_greatest(args, rows.b)));
        note &= ~kHasLow;
      }
      if (!has_tiles) break;
    }
    release_q();
  }

  __device__ __forceinline__ void run() {
#pragma unroll 1
    for (next_item(); matrix >= 0; next_item()) {
      rows.begin(matrix, int(note & kNoted));
      passes();
      rows.write();
      q_turn.next();
    }
  }
};

__device__ __forceinline__ void consume(const Args& args, const AttentionMemory& memory) {
  // from one lane, so that what is made of it is in registers of the warp
  const int warp = __shfl_sync(0xffffffffu, int(threadIdx.x / 32), 0) - 4;
  AttentionGroup x{args, memory, warp / 4, AttentionRows(args, warp)};
  if constexpr (kGroups > 1)
    if (x.group == kGroups - 1) let_pass<256>(kTurns);
  x.run();
}

__device__ __forceinline__ void run_attention(const Args& args) {
  if constexpr (Config::kChecks)
    if (args.parts.again && !finds_flag(args)) return;
  const AttentionMemory memory;
  if (threadIdx.x == 0) {
    prefetch_map(args.a_map);
    prefetch_map(args.b_map[0]);
    prefetch_map(args.b_map[1]);
    memory.begin();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    give_registers<kCopyRegisters>();
    if (threadIdx.x < 32) {
      produce(args, memory);
    } else if constexpr (Config::kChecks) {
      if (!args.parts.again) check(args);
    }
  } else {
    take_registers<kRegisters>();
    consume(args, memory);
  }
}
