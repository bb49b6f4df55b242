// A product by mma.sync: for every architecture from sm_80 on, every extent, every stride. A block makes one
// tile of the result. Stages of shared memory are filled by copies that run beside the threads, several k
// steps ahead; fragments of the next half step are loaded while the present one is multiplied. Rows of shared
// memory are permuted in units of 16 bytes, so that neither copies nor ldmatrix meet on a bank. What lies
// outside the matrices is 0 in shared memory and is never given to the epilogue.
//
// Narrow copies serve operands whose rows begin at multiples of 8 or 4 bytes; single elements, any strides.
#pragma once

template <int Class>
struct MmaTile;  // mirrored by codegen/cuda/product_launch.cpp
template <>
struct MmaTile<0> {
  static constexpr int m = 128, n = 256, m_warps = 2, n_warps = 4, stages = 4, blocks = 1;
};
template <>
struct MmaTile<1> {
  static constexpr int m = 128, n = 128, m_warps = 2, n_warps = 2, stages = 3, blocks = 2;
};
template <>
struct MmaTile<2> {
  static constexpr int m = 64, n = 64, m_warps = Config::kProducts == 1 ? 2 : 4,
                       n_warps = Config::kProducts == 1 ? 2 : 1, stages = 4, blocks = 3;
};

typedef MmaTile<Config::kTile> Tile;
typedef Config::Element Element;
constexpr int kThreads = 32 * Tile::m_warps * Tile::n_warps, kBlocksPerSm = Tile::blocks;
constexpr int kDepth = 32;  // of a stage, along k
constexpr int kWarpM = Tile::m / Tile::m_warps,
              kWarpN = Tile::n / Tile::n_warps;      // a warp's part of the tile
constexpr int kEachN = Tile::n / Config::kProducts;  // columns of one product
constexpr int kWarpEachN = kWarpN / Config::kProducts;
constexpr int kABytes = Tile::m * kDepth * 2, kEachBytes = kEachN * kDepth * 2;  // of a stage
constexpr int kStageBytes = kABytes + Config::kProducts * kEachBytes;

/// Where the 16 bytes stand that begin at unit `unit` of a line, in a tile of `Rows` rows (or columns).
/// k contiguous: a line is a row, of 4 units. Else: a line is a k, of Rows / 8 units.
template <bool KMajor, int Rows>
__device__ __forceinline__ uint32 shared_unit(int line, int unit) {
  return KMajor ? line * (kDepth * 2) + ((unit ^ (line >> 1 & 3)) << 4)
                : line * (Rows * 2) + ((unit ^ (line & 7)) << 4);
}

/// Fills stages with tiles of one operand: rows first … first + Rows - 1 of a matrix with `rows` rows.
template <bool KMajor, int Align, int Rows>
struct Filler {
  static constexpr int kUnits = KMajor ? kDepth / 8 : Rows / 8;  // of a line
  static constexpr int kLines = KMajor ? Rows : kDepth;
  static constexpr int kLineStep = kThreads / kUnits;  // lines between two units of a thread
  static constexpr int kCount = kLines / kLineStep;
  static_assert(kThreads % kUnits == 0 && kLines % kLineStep == 0 && kLineStep % 8 == 0,
                "permutation's period");

  const Element* at;        // this thread's first unit, of the next stage
  int64 line_stride, step;  // elements between its units; between stages
  int64 element;            // between the elements of a unit
  int unit_left;            // elements from this thread's unit to the end of the line (its k moves)
  int line_left;            // lines from this thread's first one to the end
  uint32 to;                // within a stage

  __device__ __forceinline__ Filler(const Element* matrix, int64 row_stride, int64 k_stride, int first,
                                    int rows, int k) {
    const int unit = threadIdx.x % kUnits, line = threadIdx.x / kUnits;
    if (Align > 2) (KMajor ? k_stride : row_stride) = 1;
    element = KMajor ? k_stride : row_stride;
    line_stride = KMajor ? row_stride : k_stride;
    step = k_stride * kDepth;
    const int64 along = KMajor ? unit * 8 : int64(first) + unit * 8,
                across = KMajor ? int64(first) + line : line;
    at = matrix + along * element + across * line_stride;
    unit_left = (KMajor ? k : rows - first) - unit * 8;
    line_left = (KMajor ? rows - first : k) - line;
    to = shared_unit<KMajor, Rows>(line, unit);
  }

  /// Starts the copies of the next stage, whose operand begins at `stage`.
  __device__ __forceinline__ void fill(uint32 stage) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int line = i * kLineStep;
      const Element* const from = at + line * line_stride;
      const int there = line < line_left ? (unit_left < 8 ? (unit_left < 0 ? 0 : unit_left) : 8) : 0;
      const uint32 unit = stage + to + line * (KMajor ? kDepth * 2 : Rows * 2);
      if constexpr (Align == 2) {
        union {
          Element elements[8];
          uint4 words;
        } u;
        u.words = uint4{0, 0, 0, 0};
#pragma unroll
        for (int e = 0; e < 8; ++e)
          if (e < there) u.elements[e] = from[e * element];
        store_shared(unit, u.words);
      } else {
#pragma unroll
        for (int part = 0; part < 16 / Align; ++part) {
          const int bytes = there * 2 - part * Align;
          const int read = bytes < 0 ? 0 : bytes < Align ? bytes : Align;
          copy_async<Align>(unit + part * Align, from + part * (Align / 2), read);
        }
      }
    }
    at += step;
    (KMajor ? unit_left : line_left) -= kDepth;
  }
};

/// What a warp multiplies in half a stage: k of 16.
struct Fragments {
  uint32 a[kWarpM / 16][4];
  uint32 b[kWarpN / 16][4];  // two blocks of 8 columns each
};

/// Addresses of this lane's rows for ldmatrix, within a stage.
struct Reader {
  uint32 a, b[Config::kProducts];

  __device__ __forceinline__ Reader(int warp_m, int warp_n) {
    const int lane = threadIdx.x % 32, row = lane & 7, low = lane >> 3 & 1, high = lane >> 4;
    a = Config::kAKMajor ? shared_unit<true, Tile::m>(warp_m + row + 8 * low, high)
                         : shared_unit<false, Tile::m>(row + 8 * high, warp_m / 8 + low);
#pragma unroll
    for (int p = 0; p < Config::kProducts; ++p) {
      b[p] = kABytes + p * kEachBytes +
             (Config::kBKMajor ? shared_unit<true, kEachN>(warp_n + row + 8 * high, low)
                               : shared_unit<false, kEachN>(row + 8 * low, warp_n / 8 + high));
    }
  }

  /// Loads half `half` (0 or 1) of a stage.
  __device__ __forceinline__ void load(Fragments& to, uint32 stage, int half) const {
#pragma unroll
    for (int i = 0; i < kWarpM / 16; ++i)
      load_matrices<!Config::kAKMajor>(to.a[i], stage + block<Config::kAKMajor, Tile::m>(a, i, half));
#pragma unroll
    for (int j = 0; j < kWarpN / 16; ++j) {
      constexpr int kEach = kWarpEachN / 16;
      load_matrices<!Config::kBKMajor>(
          to.b[j], stage + block<Config::kBKMajor, kEachN>(b[j / kEach], j % kEach, half));
    }
  }

 private:
  /// The same lane's row in the i-th block of 16 rows: the permutation changes only bits that the block's
  /// number leaves alone.
  template <bool KMajor, int Rows>
  static __device__ __forceinline__ uint32 block(uint32 first, int i, int half) {
    return KMajor ? (first ^ (half << 5)) + i * 16 * (kDepth * 2)
                  : (first ^ (i << 5)) + half * 16 * (Rows * 2);
  }
};

__device__ __forceinline__ void multiply(float (&sums)[kWarpM / 16][kWarpN / 8][4], const Fragments& x) {
#pragma unroll
  for (int i = 0; i < kWarpM / 16; ++i)
#pragma unroll
    for (int j = 0; j < kWarpN / 8; ++j)
      multiply_add(sums[i][j], x.a[i], x.b[j / 2][j % 2 * 2], x.b[j / 2][j % 2 * 2 + 1], Element());
}

template <int Stages, class Fill>
__device__ __forceinline__ void main_loop(float (&sums)[kWarpM / 16][kWarpN / 8][4], const Reader& reader,
                                          int steps, const Fill& fill) {
  const uint32 shared = shared_base();
#pragma unroll
  for (int s = 0; s < Stages - 1; ++s) {
    if (s < steps) fill(shared + s * kStageBytes);
    copies_commit();
  }
  copies_wait<Stages - 2>();
  __syncthreads();
  Fragments x[2];
  reader.load(x[0], shared, 0);
  int read = 0, write = Stages - 1;
  for (int step = 0; step < steps; ++step) {
    reader.load(x[1], shared + read * kStageBytes, 1);
    if (step + Stages - 1 < steps) fill(shared + write * kStageBytes);
    copies_commit();
    multiply(sums, x[0]);
    write = read;
    read = read + 1 == Stages ? 0 : read + 1;
    copies_wait<Stages - 2>();
    __syncthreads();
    if (step + 1 < steps) reader.load(x[0], shared + read * kStageBytes, 0);
    multiply(sums, x[1]);
  }
  copies_wait<0>();
}

__device__ __forceinline__ void run_product(const Args& args) {
  const Product& product = args.product;
  const int m_tiles = tiles_of(product.m, Tile::m), n_tiles = tiles_of(product.n, kEachN);
  const TilePlace place = place_of_tile<8>(blockIdx.x, m_tiles, n_tiles, Tile::m, kEachN);
  const int warp = threadIdx.x / 32, warp_m = warp % Tile::m_warps * kWarpM,
            warp_n = warp / Tile::m_warps * kWarpEachN;

  Filler<Config::kAKMajor, Config::kAAlign, Tile::m> a(a_matrix(args, place.b), product.a_m, product.a_k,
                                                       place.m, product.m, product.k);
  typedef Filler<Config::kBKMajor, Config::kBAlign, kEachN> FillB;
  FillB b(b_matrix(args, place.b, 0), product.b_n, product.b_k, place.n, product.n, product.k);
  const Reader reader(warp_m, warp_n);
  float sums[kWarpM / 16][kWarpN / 8][4] = {};
  const int steps = tiles_of(product.k, kDepth);
  if (steps > 0) {
    if constexpr (Config::kProducts == 1) {
      main_loop<Tile::stages>(sums, reader, steps, [&](uint32 stage) {
        a.fill(stage);
        b.fill(stage + kABytes);
      });
    } else {
      FillB b1(b_matrix(args, place.b, 1), product.b_n, product.b_k, place.n, product.n, product.k);
      main_loop<Tile::stages>(sums, reader, steps, [&](uint32 stage) {
        a.fill(stage);
        b.fill(stage + kABytes);
        b1.fill(stage + kABytes + kEachBytes);
      });
    }
  }

  constexpr int kPairs = kWarpEachN / 8;
#pragma unroll
  for (int i = 0; i < kWarpM / 16; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      finish_row<kPairs>(args, place.b, place.m + warp_m + 16 * i + 8 * h + threadIdx.x % 32 / 4,
                         place.n + warp_n,
                         [&](int p, int j, int e) { return sums[i][p * kPairs + j][2 * h + e]; });
}
