// Cholesky factors and triangular systems, in blocks of 32 rows or columns: what earlier blocks take off the
// rest is subtracted by tiles, then a block is done element by element. The text before gives Element and
// Work, the type that it is computed in: a float for halves, else Element.
#pragma once

constexpr int kBlock = 32, kTile = 64, kThreads = 256;

__device__ __forceinline__ Work widened(f16 x) { return Work(to_float(x)); }
__device__ __forceinline__ Work widened(bf16 x) { return Work(to_float(x)); }
__device__ __forceinline__ Work widened(float x) { return Work(x); }
__device__ __forceinline__ Work widened(double x) { return Work(x); }
__device__ __forceinline__ float root(float x) { return __fsqrt_rn(x); }
__device__ __forceinline__ double root(double x) { return __dsqrt_rn(x); }
__device__ __forceinline__ void put(f16& to, Work x) { to = to_f16(x); }
__device__ __forceinline__ void put(bf16& to, Work x) { to = to_bf16(x); }
__device__ __forceinline__ void put(float& to, Work x) { to = float(x); }
__device__ __forceinline__ void put(double& to, Work x) { to = double(x); }

/// A batch of matrices: `batch` has its axes, row and column are strides in elements.
struct Matrices {
  const Element* data;
  Axes batch;
  int64 row, column;
};

/// Copies matrices of `columns` columns to adjacent elements. Lower: those above the diagonal are not read;
/// they are 0.
extern "C" __global__ void __launch_bounds__(kThreads)
    read_matrices(Work* __restrict__ to, Matrices from, int64 rows, int64 columns, int64 count, int lower) {
  const int64 step = (int64)gridDim.x * blockDim.x;
  for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    const int64 line = index_div(i, columns), column = i - line * columns, matrix = index_div(line, rows),
                row = line - matrix * rows;
    Work x = Work(0);
    if (!lower || column <= row)
      x = widened(from.data[offset_of(from.batch, matrix) + row * from.row + column * from.column]);
    to[i] = x;
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    write_matrices(Element* __restrict__ to, const Work* __restrict__ from, int64 count) {
  const int64 step = (int64)gridDim.x * blockDim.x;
  for (int64 i = (int64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) put(to[i], from[i]);
}

/// The factor of the diagonal block of `width` columns from `at` on; a thread block for each matrix.
extern "C" __global__ void __launch_bounds__(kThreads)
    factor_diagonal(Work* l, int64 n, int64 at, int width, int64 count) {
  __shared__ Work d[kBlock][kBlock + 1];
  for (int64 matrix = blockIdx.x; matrix < count; matrix += gridDim.x) {
    Work* const block = l + matrix * n * n + at * n + at;
    for (int e = threadIdx.x; e < width * width; e += blockDim.x)
      d[e / width][e % width] = block[e / width * n + e % width];
    __syncthreads();
    for (int j = 0; j < width; ++j) {
      if (threadIdx.x == 0) {
        d[j][j] = root(d[j][j] > Work(0) ? d[j][j] : Work(-1));  // NaN
      }
      __syncthreads();
      for (int i = j + 1 + threadIdx.x; i < width; i += blockDim.x) d[i][j] /= d[j][j];
      __syncthreads();
      const int rest = width - j - 1;
      for (int e = threadIdx.x; e < rest * rest; e += blockDim.x) {
        const int i = j + 1 + e / rest, k = j + 1 + e % rest;
        if (k <= i) d[i][k] -= d[i][j] * d[k][j];
      }
      __syncthreads();
    }
    for (int e = threadIdx.x; e < width * width; e += blockDim.x)
      if (e % width <= e / width) block[e / width * n + e % width] = d[e / width][e % width];
    __syncthreads();
  }
}

/// The rows below a full diagonal block: a thread for each.
extern "C" __global__ void __launch_bounds__(kTile)
    solve_rows(Work* l, int64 n, int64 at, int64 groups, int64 count) {
  __shared__ Work d[kBlock][kBlock + 1], x[kTile][kBlock + 1];
  for (int64 g = blockIdx.x; g < groups * count; g += gridDim.x) {
    const int64 matrix = index_div(g, groups), first = at + kBlock + (g - matrix * groups) * kTile;
    Work* const all = l + matrix * n * n;
    const int rows = int(n - first < kTile ? n - first : kTile);
    for (int e = threadIdx.x; e < kBlock * kBlock; e += blockDim.x)
      d[e / kBlock][e % kBlock] = all[(at + e / kBlock) * n + at + e % kBlock];
    for (int e = threadIdx.x; e < rows * kBlock; e += blockDim.x)
      x[e / kBlock][e % kBlock] = all[(first + e / kBlock) * n + at + e % kBlock];
    __syncthreads();
    Work* const row = x[threadIdx.x];
    for (int j = 0; j < kBlock && int(threadIdx.x) < rows; ++j) {
      Work left = row[j];
      for (int k = 0; k < j; ++k) left -= row[k] * d[j][k];
      row[j] = left / d[j][j];
    }
    __syncthreads();
    for (int e = threadIdx.x; e < rows * kBlock; e += blockDim.x)
      all[(first + e / kBlock) * n + at + e % kBlock] = x[e / kBlock][e % kBlock];
    __syncthreads();
  }
}

/// to (a tile of rows × columns elements, `pitch` to a row) minus a (rows × kBlock) times b (kBlock ×
/// columns), which `load_a(i, k)` and `load_b(k, j)` read. Lower: elements whose column is greater than row +
/// diagonal stay.
template <class A, class B>
__device__ __forceinline__ void subtract_tile(Work* to, int64 pitch, int rows, int columns, bool lower,
                                              int64 diagonal, const A& load_a, const B& load_b) {
  __shared__ Work a[kBlock][kTile + 1], b[kBlock][kTile + 1];
  for (int e = threadIdx.x; e < kTile * kBlock; e += blockDim.x)
    a[e % kBlock][e / kBlock] = e / kBlock < rows ? load_a(e / kBlock, e % kBlock) : Work(0);
  for (int e = threadIdx.x; e < kTile * kBlock; e += blockDim.x)
    b[e / kTile][e % kTile] = e % kTile < columns ? load_b(e / kTile, e % kTile) : Work(0);
  __syncthreads();
  const int i0 = threadIdx.x / 16 * 4, j0 = threadIdx.x % 16 * 4;
  Work sum[4][4] = {};
  for (int k = 0; k < kBlock; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) sum[i][j] += a[k][i0 + i] * b[k][j0 + j];
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (i0 + i < rows && j0 + j < columns && (!lower || j0 + j <= i0 + i + diagonal))
        to[(i0 + i) * pitch + j0 + j] -= sum[i][j];
  __syncthreads();
}

__device__ __forceinline__ int tile_of(int64 extent) { return int(extent < kTile ? extent : kTile); }

struct FactorRows {
  const Work* data;
  int64 pitch;
  __device__ Work operator()(int i, int k) const { return data[i * pitch + k]; }
};
struct FactorColumns {
  const Work* data;
  int64 pitch;
  __device__ Work operator()(int k, int j) const { return data[j * pitch + k]; }
};

/// What the columns of the block at `at` take off the columns behind it.
extern "C" __global__ void __launch_bounds__(kThreads)
    update_factor(Work* l, int64 n, int64 at, int64 side, int64 count) {
  const int64 tiles = side * side, begin = at + kBlock;
  for (int64 g = blockIdx.x; g < tiles * count; g += gridDim.x) {
    const int64 matrix = index_div(g, tiles), tile = g - matrix * tiles, down = index_div(tile, side),
                right = tile - down * side, row = begin + down * kTile, column = begin + right * kTile;
    if (right > down) continue;
    Work* const all = l + matrix * n * n;
    subtract_tile(all + row * n + column, n, tile_of(n - row), tile_of(n - column), true, row - column,
                  FactorRows{all + row * n + at, n}, FactorColumns{all + column * n + at, n});
  }
}

/// Solves the rows of the block at `at` for each right side, a thread each: x (n × m).
extern "C" __global__ void __launch_bounds__(kTile)
    solve_block(Work* x, Matrices a, int64 n, int64 m, int64 at, int width, int64 groups, int64 count) {
  __shared__ Work d[kBlock][kBlock + 1];
  for (int64 g = blockIdx.x; g < groups * count; g += gridDim.x) {
    const int64 matrix = index_div(g, groups), column = (g - matrix * groups) * kTile + threadIdx.x;
    const Element* const block = a.data + offset_of(a.batch, matrix) + at * (a.row + a.column);
    for (int e = threadIdx.x; e < width * width; e += blockDim.x)
      if (e % width <= e / width)
        d[e / width][e % width] = widened(block[e / width * a.row + e % width * a.column]);
    __syncthreads();
    Work* const side = x + matrix * n * m + at * m + column;
    for (int i = 0; i < width && column < m; ++i) {
      Work left = side[i * m];
      for (int k = 0; k < i; ++k) left -= d[i][k] * side[k * m];
      side[i * m] = left / d[i][i];
    }
    __syncthreads();
  }
}

struct SystemRows {
  const Element* data;
  int64 row, column;
  __device__ Work operator()(int i, int k) const { return widened(data[i * row + k * column]); }
};
struct SolvedRows {
  const Work* data;
  int64 pitch;
  __device__ Work operator()(int k, int j) const { return data[k * pitch + j]; }
};

/// What the rows of the block at `at` take off the rows behind it.
extern "C" __global__ void __launch_bounds__(kThreads)
    update_solution(Work* x, Matrices a, int64 n, int64 m, int64 at, int64 down, int64 right, int64 count) {
  const int64 tiles = down * right;
  for (int64 g = blockIdx.x; g < tiles * count; g += gridDim.x) {
    const int64 matrix = index_div(g, tiles), tile = g - matrix * tiles, line = index_div(tile, right),
                row = at + kBlock + line * kTile, column = (tile - line * right) * kTile;
    Work* const all = x + matrix * n * m;
    const Element* const part = a.data + offset_of(a.batch, matrix) + row * a.row + at * a.column;
    subtract_tile(all + row * m + column, m, tile_of(n - row), tile_of(m - column), false, 0,
                  SystemRows{part, a.row, a.column}, SolvedRows{all + at * m + column, m});
  }
}
