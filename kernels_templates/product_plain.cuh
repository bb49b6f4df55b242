// The main loop of a matrix product for every dtype and any strides, by multiply-adds of single threads:
// tiles of both operands go through shared memory, each thread has Config::kWidth adjacent columns of a few
// rows of the result, and hands them to the epilogue that Kiln generates. It is what runs where no faster
// template takes the operands.
#pragma once

constexpr int kThreads = 256, kBlocksPerSm = 2;

typedef Config::Element Element;
typedef Config::Sum Sum;

__device__ __forceinline__ float summand(f16 x, float) { return to_float(x); }
__device__ __forceinline__ float summand(bf16 x, float) { return to_float(x); }
template <class T, class S>
__device__ __forceinline__ S summand(T x, S) {
  return Config::kTruth ? S(x != 0) : S(x);
}

__device__ __forceinline__ float add_product(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ double add_product(double a, double b, double c) { return __fma_rn(a, b, c); }
__device__ __forceinline__ uint32 add_product(uint32 a, uint32 b, uint32 c) { return a * b + c; }
__device__ __forceinline__ uint64 add_product(uint64 a, uint64 b, uint64 c) { return a * b + c; }

constexpr int kTile = 64, kDepth = 16, kW = Config::kWidth;
constexpr int kGroups = kTile / kW;         // of columns
constexpr int kTeams = kThreads / kGroups;  // threads of a column group: each has every kTeams-th row
constexpr int kRows = kTile / kTeams;

/// Rows `first` to first + kTile of a matrix, `depth` steps from k0 on, as to[step][row]; 0 outside. Adjacent
/// threads read what is adjacent in memory.
__device__ __forceinline__ void fill_tile(Sum (&to)[kDepth][kTile + 1], const Element* from, int64 across,
                                          int64 along, int first, int rows, int k0, int k) {
  const bool by_steps = along == 1;
  for (int i = threadIdx.x; i < kTile * kDepth; i += kThreads) {
    const int row = by_steps ? i / kDepth : i % kTile, step = by_steps ? i % kDepth : i / kTile;
    const bool there = first + row < rows && k0 + step < k;
    to[step][row] = there ? summand(from[(first + row) * across + (k0 + step) * along], Sum()) : Sum();
  }
}

__device__ __forceinline__ void run_product(const Args& args) {
  __shared__ Sum a[kDepth][kTile + 1], b[kDepth][kTile + 1];
  const Product p = args.product;
  const int n_tiles = (p.n + kTile - 1) / kTile, m_tiles = (p.m + kTile - 1) / kTile;
  const int batch = blockIdx.x / (m_tiles * n_tiles), rest = blockIdx.x % (m_tiles * n_tiles);
  const int m0 = rest / n_tiles * kTile, n0 = rest % n_tiles * kTile;
  const int column = threadIdx.x % kGroups * kW, team = threadIdx.x / kGroups;
  const Element *of_a = a_matrix(args, batch), *of_b = b_matrix(args, 0, batch);
  Sum sums[kRows][1][kW] = {};
  for (int k0 = 0; k0 < p.k; k0 += kDepth) {
    fill_tile(a, of_a, p.a_m, p.a_k, m0, p.m, k0, p.k);
    fill_tile(b, of_b, p.b_n, p.b_k, n0, p.n, k0, p.k);
    __syncthreads();
#pragma unroll
    for (int step = 0; step < kDepth; ++step)
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int w = 0; w < kW; ++w)
          sums[r][0][w] = add_product(a[step][team + r * kTeams], b[step][column + w], sums[r][0][w]);
    __syncthreads();
  }
  const int left = p.n - (n0 + column) < kW ? p.n - (n0 + column) : kW;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int m = m0 + team + r * kTeams;
    if (m < p.m && left > 0) epilogue(args, 0, batch, m, n0 + column, left, sums[r]);
  }
}
