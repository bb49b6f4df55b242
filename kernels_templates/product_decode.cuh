// A product with few rows, whose time is that of reading B once: decoding tokens against weights. A block
// makes 16 rows and a few columns. Its warps take turns along k, each with stages of shared memory of its own
// that copies fill several steps ahead, so that no warp waits for another until the end. Each sum is made in
// a fixed order: along k within a warp, then over warps.
//
// Pre: k is A's contiguous axis; rows of both operands begin at multiples of 16 bytes.
#pragma once

typedef Config::Element Element;
constexpr int kWarps = 4, kThreads = 32 * kWarps, kBlocksPerSm = 2, kStages = 4;
constexpr int kRows = 16, kTileN = Config::kBKMajor ? 32 : 64;  // of a block; mirrored by product_launch.cpp
constexpr int kColumns = kTileN / Config::kProducts;            // of one product
constexpr int kDepth = Config::kBKMajor ? 64 : 32;              // k of a warp's step
constexpr int kALine = kDepth * 2, kBLine = Config::kBKMajor ? kDepth * 2 : kColumns * 2;  // bytes
constexpr int kBLines = Config::kBKMajor ? kColumns : kDepth;
constexpr int kABytes = kRows * kALine, kEachBytes = kBLines * kBLine;
constexpr int kStageBytes = kABytes + Config::kProducts * kEachBytes;
static_assert(Config::kAKMajor && Config::kAAlign == 16 && Config::kBAlign == 16, "");

/// Where the 16 bytes stand that begin at unit `unit` of a line: permuted, so that ldmatrix meets no bank
/// twice.
template <int Line>
__device__ __forceinline__ uint32 shared_unit(int line, int unit) {
  static_assert(Line == 64 || Line == 128, "");
  return line * Line + ((unit ^ (Line == 64 ? line >> 1 & 3 : line & 7)) << 4);
}

__device__ __forceinline__ int between_0_and_8(int x) { return x < 0 ? 0 : x < 8 ? x : 8; }

/// One warp's part of both operands, as its lanes copy it.
struct Operands {
  const Element* a;
  const Element* b[Config::kProducts];
  int64 a_pitch, b_pitch;  // elements between lines
  int rows, columns, k;    // what is there, from this block's first on

  __device__ __forceinline__ void fill(uint32 stage, int first_k) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kABytes / 512; ++i) {
      const int line = (32 * i + lane) / (kALine / 16), unit = (32 * i + lane) % (kALine / 16);
      const int at = first_k + 8 * unit, there = line < rows ? between_0_and_8(k - at) : 0;
      copy_async<16>(stage + shared_unit<kALine>(line, unit), a + line * a_pitch + at, 2 * there);
    }
#pragma unroll
    for (int p = 0; p < Config::kProducts; ++p)
#pragma unroll
      for (int i = 0; i < kEachBytes / 512; ++i) {
        const int line = (32 * i + lane) / (kBLine / 16), unit = (32 * i + lane) % (kBLine / 16);
        const uint32 to = stage + kABytes + p * kEachBytes + shared_unit<kBLine>(line, unit);
        if constexpr (Config::kBKMajor) {
          const int at = first_k + 8 * unit, there = line < columns ? between_0_and_8(k - at) : 0;
          copy_async<16>(to, b[p] + line * b_pitch + at, 2 * there);
        } else {
          const int at = first_k + line, there = at < k ? between_0_and_8(columns - 8 * unit) : 0;
          copy_async<16>(to, b[p] + at * b_pitch + 8 * unit, 2 * there);
        }
      }
  }
};

typedef float Sums[Config::kProducts][kColumns / 8][4];

__device__ __forceinline__ void multiply(Sums& sums, uint32 stage) {
  const int lane = threadIdx.x % 32, row = lane & 7, low = lane >> 3 & 1, high = lane >> 4;
#pragma unroll
  for (int part = 0; part < kDepth / 16; ++part) {
    uint32 a[4];
    load_matrices<false>(a, stage + shared_unit<kALine>(row + 8 * low, 2 * part + high));
#pragma unroll
    for (int p = 0; p < Config::kProducts; ++p)
#pragma unroll
      for (int j = 0; j < kColumns / 16; ++j) {
        const uint32 each = stage + kABytes + p * kEachBytes;
        uint32 b[4];
        load_matrices<!Config::kBKMajor>(
            b, each + (Config::kBKMajor ? shared_unit<kBLine>(16 * j + row + 8 * high, 2 * part + low)
                                        : shared_unit<kBLine>(16 * part + row + 8 * low, 2 * j + high)));
        multiply_add(sums[p][2 * j], a, b[0], b[1], Element());
        multiply_add(sums[p][2 * j + 1], a, b[2], b[3], Element());
      }
  }
}

__device__ __forceinline__ void run_product(const Args& args) {
  const Product& product = args.product;
  const int m_tiles = tiles_of(product.m, kRows), n_tiles = tiles_of(product.n, kColumns);
  const TilePlace place = place_of_tile<1>(blockIdx.x, m_tiles, n_tiles, kRows, kColumns);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  Operands operands;
  operands.a = a_matrix(args, place.b) + place.m * product.a_m;
  operands.a_pitch = product.a_m;
  operands.b_pitch = Config::kBKMajor ? product.b_n : product.b_k;
  operands.rows = product.m - place.m;
  operands.columns = product.n - place.n;
  operands.k = product.k;
#pragma unroll
  for (int p = 0; p < Config::kProducts; ++p)
    operands.b[p] = b_matrix(args, place.b, p) + (Config::kBKMajor ? place.n * product.b_n : int64(place.n));

  const uint32 shared = shared_base(), mine = shared + warp * kStages * kStageBytes;
  constexpr int kStep = kWarps * kDepth;
  int ahead = warp * kDepth;
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s, ahead += kStep) {
    if (ahead < product.k) operands.fill(mine + s * kStageBytes, ahead);
    copies_commit();
  }
  Sums sums = {};
  int read = 0;
  for (int k = warp * kDepth; k < product.k; k += kStep, ahead += kStep) {
    copies_wait<kStages - 2>();
    __syncwarp();
    const int write = read == 0 ? kStages - 1 : read - 1;  // what the step before has read
    if (ahead < product.k) operands.fill(mine + write * kStageBytes, ahead);
    copies_commit();
    multiply(sums, mine + read * kStageBytes);
    read = read + 1 == kStages ? 0 : read + 1;
  }
  copies_wait<0>();
  __syncthreads();

  constexpr int kPitch = kTileN + 8;  // floats of a row of a warp's sums
#pragma unroll
  for (int p = 0; p < Config::kProducts; ++p)
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        store_shared(shared + 4 * ((warp * kRows + lane / 4 + e / 2 * 8) * kPitch + p * kColumns + 8 * j +
                                   2 * (lane % 4) + e % 2),
                     __float_as_uint(sums[p][j][e]));
  __syncthreads();
  constexpr int kWidth = Config::kWidth, kAcross = kColumns / kWidth;
  for (int i = threadIdx.x; i < kRows * kAcross; i += kThreads) {
    const int m = i / kAcross, n = i % kAcross * kWidth, left = operands.columns - n;
    if (m >= operands.rows || left <= 0) continue;
    float total[Config::kProducts][kWidth];
#pragma unroll
    for (int p = 0; p < Config::kProducts; ++p)
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < kWarps; ++w)
          sum += __uint_as_float(load_shared(shared + 4 * ((w * kRows + m) * kPitch + p * kColumns + n + e)));
        total[p][e] = sum;
      }
    epilogue(args, place.b, place.m + m, place.n + n, left < kWidth ? left : kWidth, total);
  }
}
