// A product on Hopper: the copy engine fills stages of shared memory, warpgroups multiply out of it. A block
// is one warpgroup that orders copies and two that multiply, each 64 rows of a tile; it walks over tiles
// until none are left, so that copies for the next tile run while the epilogue of this one does. Two barriers
// a stage: full (bytes have come) and empty (all warps that read the stage are done). In clusters of two,
// blocks that are neighbours along m share columns: each fetches half of them for both.
//
// The second multiplying warpgroup stays a few stages behind the first (`ahead`): while one runs the
// epilogue, the other's products keep the tensor cores busy.
//
// Elements are halves; or floats, of which tensor cores read the first 19 bits, or 8-bit floats: of these k
// is the contiguous axis. Sums of 8-bit floats have about 14 bits in tensor cores, so that each stage has
// sums of its own, which are added up as float32.
//
// Tensor maps fill with 0 what lies outside the matrices; the epilogue is not called there. Needs operands
// that tensor maps can describe; k may be 0. An operand may be windows of an array (Config::kWindows: 0, or 1
// or 2 for that of the rows or the columns; product_windows.cuh).
#pragma once

template <int Class>
struct WgmmaTile;  // mirrored by codegen/cuda/product_launch.cpp
template <>
struct WgmmaTile<0> {
  static constexpr int n = 256, stages = 4, cluster = 1, ahead = 3;
};
template <>
struct WgmmaTile<1> {
  static constexpr int n = 256, stages = 4, cluster = 2, ahead = 3;
};
template <>
struct WgmmaTile<2> {
  static constexpr int n = 128, stages = 6, cluster = 1, ahead = 5;
};

typedef WgmmaTile<Config::kTile> Tile;
typedef Config::Element Element;
typedef Multiplied<Element, Config>::type Multiply;
constexpr int kThreads = 384, kBlocksPerSm = 1;
constexpr int kElement = sizeof(Element), kLine = 128;  // bytes of an element, of a row's k in a stage
constexpr int kTileM = 128, kDepth = kLine / kElement;  // rows of a block's tile; k of a stage
constexpr int kEachN = Tile::n / Config::kProducts, kBoxN = kEachN < 128 ? kEachN : 128;
constexpr int kBoxes = Tile::n / kBoxN;  // copies of B's operands to a stage, where k is contiguous
constexpr int kABytes = kTileM * kLine, kStageBytes = kABytes + Tile::n * kLine;
constexpr int kConsumerWarps = 8;
constexpr int kSlab = 64 * kLine;  // bytes of 64 rows in a stage
static_assert(kBoxes % Tile::cluster == 0 && (Config::kProducts == 1 || Config::kParts == 1), "");
static_assert(kElement == 2 || (Config::kAKMajor && Config::kBKMajor), "only halves have another order");

struct Stages {
  uint32 data, full, empty, ahead;  // shared addresses of the first of each
  __device__ __forceinline__ Stages() {
    data = (shared_base() + 1023) & ~1023u;  // the period of the permutation
    full = data + Tile::stages * kStageBytes;
    empty = full + Tile::stages * 8;
    ahead = empty + Tile::stages * 8;
  }
};

/// Which stage is next, and the parity of its phase.
struct Turn {
  int stage = 0;
  uint32 parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == Tile::stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

/// The tiles of a cluster, one after another.
struct Walk {
  int64 tile, count;
  int m_tiles, n_tiles;
  __device__ __forceinline__ Walk(const Args& args) {
    const Product& product = args.product;
    m_tiles = tiles_of(product.m, kTileM * Tile::cluster);
    n_tiles = tiles_of_parts<Config::kParts>(args, kEachN);
    count = int64(m_tiles) * n_tiles * product.batch;
    tile = blockIdx.x / Tile::cluster;
  }
  __device__ __forceinline__ bool more() const { return tile < count; }
  __device__ __forceinline__ void next() { tile += gridDim.x / Tile::cluster; }
  /// Of the block that is `rank` in its cluster.
  __device__ __forceinline__ TilePlace place(const Args& args, int rank) const {
    TilePlace place =
        place_of_tile<16 / Tile::cluster>(tile, m_tiles, n_tiles, kTileM * Tile::cluster, kEachN);
    place.m += rank * kTileM;
    enter_part<Config::kParts>(args, place, kEachN);
    return place;
  }
};

/// The copies of a tile's stages, one stage after the other. Windows: which operand is windows, 1 or 2; those
/// of a stage are kDepth channels of one element of as many windows as the tile has lines. What is behind the
/// last channel is 0 in both operands.
template <class A, int Windows>
struct StageCopies {
  static constexpr int kAxes = Config::kWindowAxes;
  static constexpr int kMine = Tile::n / kBoxN / Tile::cluster;  // boxes of B that this block copies
  static constexpr int kBoxesOfWindows = Windows == 1 ? 1 : kMine;
  // (depends on Windows, so that it is not looked at where there are none)
  static_assert(Windows > 0 && Config::kAKMajor && Config::kBKMajor && Config::kProducts == 1, "");

  const A& args;
  const TilePlace& place;
  const int rank;
  const WindowBatch batch;
  int channel = 0;
  WindowTap<kAxes> tap;
  int first[kBoxesOfWindows][kAxes + 1];  // of each box: where its first window begins, and its image

  __device__ __forceinline__ StageCopies(const A& a, const TilePlace& p, int r)
      : args(a), place(p), rank(r), batch(a.windows, p.b, Windows == 1 ? a.product.m : a.product.n) {
#pragma unroll
    for (int i = 0; i < kBoxesOfWindows; ++i) {
      const int line = Windows == 1 ? place.m : place.n + (rank * kMine + i) * kBoxN;
      const WindowPlace<kAxes> window(a.windows, batch.first + line);
#pragma unroll
      for (int axis = 0; axis < kAxes; ++axis) first[i][axis] = window.at[axis];
      first[i][kAxes] = window.image;
    }
  }

  __device__ __forceinline__ void next() {
    channel += kDepth;
    if (channel < args.windows.channels) return;
    channel = 0;
    tap.next(args.windows);
  }

  __device__ __forceinline__ void windows_at(int box, int (&c)[kAxes + 2], uint16 (&e)[kAxes]) const {
    c[0] = batch.group * args.windows.channels + channel;
#pragma unroll
    for (int axis = 0; axis < kAxes; ++axis) {
      c[axis + 1] = first[box][axis];
      e[axis] = uint16(tap.at[axis] * args.windows.gap[axis]);
    }
    c[kAxes + 1] = first[box][kAxes];
  }
  __device__ __forceinline__ void lines_at(int line, int (&c)[4]) const {
    c[0] = channel;
    c[1] = line;
    c[2] = tap.number;
    c[3] = !Config::kBatched ? 0 : args.windows.groups > 1 ? batch.group : place.b;
  }

  __device__ __forceinline__ void copy(uint32 data, uint32 full) const {
    int c[kAxes + 2], lines[4];
    uint16 e[kAxes];
    if constexpr (Windows == 1) {
      windows_at(0, c, e);
      copy_windows(data, args.a_map, c, e, full);
    } else {
      lines_at(place.m, lines);
      copy_box(data, args.a_map, lines, full);
    }
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const int n = (rank * kMine + i) * kBoxN;
      const uint32 to = data + kABytes + n * kLine;
      if constexpr (Windows == 1) {
        lines_at(place.n + n, lines);
        if constexpr (Tile::cluster == 1)
          copy_box(to, args.b_map[0], lines, full);
        else
          copy_box(to, args.b_map[0], lines, full, (1 << Tile::cluster) - 1);
      } else {
        windows_at(i, c, e);
        if constexpr (Tile::cluster == 1)
          copy_windows(to, args.b_map[0], c, e, full);
        else
          copy_windows(to, args.b_map[0], c, e, full, (1 << Tile::cluster) - 1);
      }
    }
  }
};

/// StageCopies of boxes of both matrices.
template <class A>
struct StageCopies<A, 0> {
  const A& args;
  const TilePlace& place;
  const int rank;
  int k = 0;

  __device__ __forceinline__ StageCopies(const A& a, const TilePlace& p, int r)
      : args(a), place(p), rank(r) {}
  __device__ __forceinline__ void next() { k += kDepth; }

  __device__ __forceinline__ void copy(uint32 data, uint32 full) const {
    int at[3];
    if constexpr (Config::kAKMajor) {
      a_at(args, place.b, place.m, k, at);
      copy_box(data, args.a_map, at, full);
    } else {
#pragma unroll
      for (int i = 0; i < kTileM / 64; ++i) {
        a_at(args, place.b, place.m + 64 * i, k, at);
        copy_box(data + i * kSlab, args.a_map, at, full);
      }
    }
    constexpr int kStep = Config::kBKMajor ? kBoxN : 64;
    constexpr int kMine = Tile::n / kStep / Tile::cluster;
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const int n = (rank * kMine + i) * kStep, inside = n / kEachN, p = place.p + inside;
      const uint32 to = data + kABytes + n * kLine;
      b_at(args, place.b, p, place.n + n - inside * kEachN, k, at);
      if constexpr (Tile::cluster == 1)
        copy_box(to, args.b_map[p], at, full);
      else
        copy_box(to, args.b_map[p], at, full, (1 << Tile::cluster) - 1);
    }
  }
};

template <class A, int Windows>
__device__ __forceinline__ int steps_of(const A& args) {
  if constexpr (Windows == 0)
    return tiles_of(args.product.k, kDepth);
  else
    return taps_of<Config::kWindowAxes>(args.windows) * tiles_of(args.windows.channels, kDepth);
}

__device__ __forceinline__ void produce(const Args& args, const Stages& stages, int rank) {
  const int steps = steps_of<Args, Config::kWindows>(args);
  Turn turn;
  for (Walk walk(args); walk.more(); walk.next()) {
    const TilePlace place = walk.place(args, rank);
    StageCopies<Args, Config::kWindows> copies(args, place, rank);
    for (int step = 0; step < steps; ++step, turn.next(), copies.next()) {
      barrier_wait(stages.empty + 8 * turn.stage, turn.parity ^ 1);
      const uint32 full = stages.full + 8 * turn.stage;
      barrier_expect(full, kStageBytes);
      copies.copy(stages.data + turn.stage * kStageBytes, full);
    }
  }
}

/// What tells wgmma where a tile stands: permuted in units of 16 bytes over 128. k contiguous: rows of 128
/// bytes, eight of them a group. Else: rows of 64 elements along m or n, one for each k, eight of them a
/// group; the next 64 elements stand a slab on.
template <bool KMajor>
__device__ __forceinline__ uint64 tile_descriptor(uint32 at) {
  constexpr uint64 kLeading = KMajor ? 1 : kSlab >> 4, kStride = 1024 >> 4, kPermuted128 = 1;
  return uint64((at & 0x3ffff) >> 4) | kLeading << 16 | kStride << 32 | kPermuted128 << 62;
}

/// The epilogue of this lane's two rows: of both for some columns before the next ones, so that what they
/// read of columns alone is loaded once.
template <bool Whole>
__device__ __forceinline__ void finish_rows(const Args& args, const TilePlace& place, int part, int row,
                                            int columns, const float (&sums)[Tile::n / 2]) {
  constexpr int kPairs = kEachN / 8, kBlock = Config::kPartner > 0 ? Config::kPartner / 4 : 4;
#pragma unroll
  for (int first = 0; first < kPairs; first += kBlock)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      finish_row<kBlock, Whole>(
          args, part, place.b, row + 8 * h, place.n + 8 * first, columns,
          [&](int p, int j, int e) { return sums[4 * (p * kPairs + first + j) + 2 * h + e]; });
}

/// The same where all rows and columns of the tile are there. The part is a constant in each branch, so that
/// its calls are one run of instructions; the empty asm keeps compilers from making one run for all parts
/// with a branch in each call.
template <int Part>
__device__ __forceinline__ void finish_whole(const Args& args, const TilePlace& place, int row, int columns,
                                             const float (&sums)[Tile::n / 2]) {
  if (Part + 1 == Config::kParts || place.p == Part) {
    asm volatile("" ::"n"(Part));
    finish_rows<true>(args, place, Part, row, columns, sums);
  } else if constexpr (Part + 1 < Config::kParts) {
    finish_whole<Part + 1>(args, place, row, columns, sums);
  }
}

/// Begins the products of a stage, whose operands the descriptors tell; `keep`: adds them to the sums.
template <class Type>
__device__ __forceinline__ void multiply_stage(float (&sums)[Tile::n / 2], uint64 a, uint64 b, bool keep,
                                               Type type) {
  // how far the k of an instruction is, in the descriptor's units: 32 bytes, or 16 rows
  constexpr int kNextA = (Config::kAKMajor ? 32 : 16 * 128) >> 4,
                kNextB = (Config::kBKMajor ? 32 : 16 * 128) >> 4;
  products_fence();
#pragma unroll
  for (int part = 0; part < kLine / 32; ++part)
    group_multiply_add<!Config::kAKMajor, !Config::kBKMajor>(sums, a + part * kNextA, b + part * kNextB,
                                                             keep || part > 0, type);
  products_commit();
}
/// Of 8-bit floats it ends them too: sums of the stage, 128 columns at a time, are added up. The other
/// warpgroup multiplies in the meantime.
template <bool A, bool B>
__device__ __forceinline__ void multiply_stage(float (&sums)[Tile::n / 2], uint64 a, uint64 b, bool,
                                               float8_pair<A, B> type) {
  constexpr int kCount = 64, kColumns = 2 * kCount * kLine >> 4;  // of sums; in the descriptor's units
#pragma unroll
  for (int first = 0; first < Tile::n / 2; first += kCount) {
    float stage[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) forget(stage[i]);
    products_fence();
#pragma unroll
    for (int part = 0; part < kLine / 32; ++part)
      group_multiply_add<0, 0>(stage, a + part * 2, b + first / kCount * kColumns + part * 2, part > 0, type);
    products_commit();
    products_wait<0>();
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[first + i] += stage[i];
  }
}

__device__ __forceinline__ void consume(const Args& args, const Stages& stages, int rank) {
  const int group = threadIdx.x / 128 - 1, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const int steps = steps_of<Args, Config::kWindows>(args);
  const auto release = [&](int stage) {
    const uint32 empty = stages.empty + 8 * stage;
    if constexpr (Tile::cluster == 1) {
      if (lane == 0) barrier_arrive(empty);
    } else {
      if (lane < Tile::cluster) barrier_arrive(empty, lane);
    }
  };
  // The first warpgroup tells the second once a tile; with fewer steps it could come two tiles before it,
  // which a parity cannot tell from none.
  const int ahead = steps >= Tile::stages ? Tile::ahead : 0;
  uint32 ahead_parity = 0;
  Turn turn;
  for (Walk walk(args); walk.more(); walk.next()) {
    if (group == 1 && ahead > 0) {
      barrier_wait(stages.ahead, ahead_parity);
      ahead_parity ^= 1;
    }
    float sums[Tile::n / 2];
    if (steps == 0 || kElement == 1) {
#pragma unroll
      for (int i = 0; i < Tile::n / 2; ++i) sums[i] = 0;
    }
    int before = 0;
    for (int step = 0; step < steps; ++step) {
      barrier_wait(stages.full + 8 * turn.stage, turn.parity);
      const uint32 data = stages.data + turn.stage * kStageBytes;
      const uint64 a = tile_descriptor<Config::kAKMajor>(data + group * kSlab),
                   b = tile_descriptor<Config::kBKMajor>(data + kABytes);
      multiply_stage(sums, a, b, step > 0, Multiply());
      if constexpr (kElement == 1) {
        release(turn.stage);
      } else {
        products_wait<1>();
        if (step > 0) release(before);
      }
      if (group == 0 && step + 1 == ahead && threadIdx.x == 128) barrier_arrive(stages.ahead);
      before = turn.stage;
      turn.next();
    }
    if constexpr (kElement > 1) {
      products_wait<0>();
      if (steps > 0) release(before);
    }

    const TilePlace place = walk.place(args, rank);
    const int columns = part_of<Config::kParts>(args, place.p).n;
    const int row = place.m + group * 64 + warp * 16 + lane / 4;
    if constexpr (Config::kWhole)
      finish_whole<0>(args, place, row, columns, sums);
    else
      finish_rows<false>(args, place, place.p, row, columns, sums);
  }
}

__device__ __forceinline__ void run_product(const Args& args) {
  const Stages stages;
  const int rank = Tile::cluster == 1 ? 0 : cluster_rank();
  if (threadIdx.x == 0) {
    prefetch_map(args.a_map);
#pragma unroll
    for (int p = 0; p < Config::kProducts * Config::kParts; ++p) prefetch_map(args.b_map[p]);
#pragma unroll
    for (int s = 0; s < Tile::stages; ++s) {
      barrier_init(stages.full + 8 * s, 1);
      barrier_init(stages.empty + 8 * s, kConsumerWarps * Tile::cluster);
    }
    barrier_init(stages.ahead, 1);
    fence_barriers();
  }
  if constexpr (Tile::cluster == 1)
    __syncthreads();
  else
    cluster_meet();

  if (threadIdx.x < 128) {
    give_registers<40>();
    if (threadIdx.x == 0) produce(args, stages, rank);
    __syncwarp();
  } else {
    take_registers<232>();
    consume(args, stages, rank);
  }
  // until then the other block may copy to this one's shared memory and arrive at its barriers
  if constexpr (Tile::cluster > 1) cluster_meet();
}
