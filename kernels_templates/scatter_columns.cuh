// Many values of few long rows: a thread has sums of some columns of all rows in shared memory, which nobody
// else adds to; what a block has added up goes to the rows once. After scatter_sums.cuh.
#pragma once

__device__ __forceinline__ Kept* private_sums() {
#ifdef KILN_FAKE_DEVICE
  __shared__ Kept memory[1 << 16];
  return memory;
#else
  extern __shared__ uint4 dynamic_memory[];
  return (Kept*)dynamic_memory;
#endif
}

/// The library's ColumnUnits.
struct ColumnUnits {
  int64 chunk;               // of values, of a block
  int lanes, parts, blocks;  // threads across columns; of a block, with sums of their own; across all columns
  int unused;
};

/// The row that an index says, or `rows`.
__device__ __forceinline__ int row_of(Index index, int rows) {
  if constexpr (sizeof(Index) > 4) {
    int64 position;
    return resolve(index, rows, position) ? int(position) : rows;
  } else {
    const int row = int(index) + (Index(-1) < Index(0) && int(index) < 0 ? rows : 0);
    return (unsigned int)row < (unsigned int)rows ? row : rows;
  }
}

/// What the parts of a block have added up of a thread's columns, to the rows' sums.
template <int N>
__device__ __forceinline__ void end_columns(Kept* to, const Kept* from, int rows, int part, int parts,
                                            int pitch, int64 to_pitch) {
  for (int r = part; r < rows; r += parts) {
    vec<Kept, N> sum = load<N>(from + r * pitch);
    for (int p = 1; p < parts; ++p) {
      const vec<Kept, N> more = load<N>(from + (p * (rows + 1) + r) * pitch);
#pragma unroll
      for (int v = 0; v < N; ++v) sum.at[v] += more.at[v];
    }
    add_vector(to + r * to_pitch, sum);
  }
}

/// Told how many blocks are to be resident, the assembler keeps loads in flight instead of saving registers.
/// Behind the sums of all rows are those of indices that are out of range.
template <int N>
__device__ __forceinline__ void add_columns(Kept* sums, const Element* values, const Index* indices,
                                            const RowSums& s, const ColumnUnits& c) {
  Kept* const memory = private_sums();
  constexpr int kAtOnce = 8;
  const int part = threadIdx.x / c.lanes, lane = threadIdx.x - part * c.lanes, rows = int(s.rows);
  const int64 column = (int64(blockIdx.x % c.blocks) * c.lanes + lane) * N;
  const bool adds = part < c.parts && column < s.width;
  const int pitch = c.lanes * N, all = (rows + 1) * pitch;
  Kept* const mine = memory + part * all + lane * N;
  if (adds) {
    vec<Kept, N> none;
#pragma unroll
    for (int v = 0; v < N; ++v) none.at[v] = -Kept(0);
    for (int r = 0; r <= rows; ++r) store(mine + r * pitch, none);
    const auto add = [&](Index index, const vec<Element, N>& x) {
      Kept* const to = mine + row_of(index, rows) * pitch;
      vec<Kept, N> sum = load<N>(to);
#pragma unroll
      for (int v = 0; v < N; ++v) {
        Kept value;
        assign(value, x.at[v]);
        sum.at[v] += value;
      }
      store(to, sum);
    };
    const int64 begin = int64(blockIdx.x / c.blocks) * c.chunk, left = s.count - begin,
                step = c.parts * s.value_stride;
    const int count = int(left < c.chunk ? left : c.chunk);
    const Element* from = values + (begin + part) * s.value_stride + column;
    const Index* index_at = indices + begin + part;
    int i = part;
    for (; i + (kAtOnce - 1) * c.parts < count; i += kAtOnce * c.parts) {
      Index index[kAtOnce];
      vec<Element, N> x[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        index[k] = index_at[k * c.parts];
        x[k] = load<N>(from + k * step);
      }
      index_at += kAtOnce * c.parts;
      from += kAtOnce * step;
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) add(index[k], x[k]);
    }
#pragma unroll 1
    for (; i < count; i += c.parts, from += step, index_at += c.parts) add(*index_at, load<N>(from));
  }
  __syncthreads();
  if (adds) end_columns<N>(sums + column, memory + lane * N, rows, part, c.parts, pitch, s.pitch);
}
extern "C" __global__ void __launch_bounds__(256, 4)
    add_columns_by_fours(Kept* sums, const Element* values, const Index* indices, RowSums s, ColumnUnits c) {
  add_columns<4>(sums, values, indices, s, c);
}
extern "C" __global__ void __launch_bounds__(256, 4)
    add_columns_by_pairs(Kept* sums, const Element* values, const Index* indices, RowSums s, ColumnUnits c) {
  add_columns<2>(sums, values, indices, s, c);
}
extern "C" __global__ void __launch_bounds__(256, 4)
    add_columns_by_ones(Kept* sums, const Element* values, const Index* indices, RowSums s, ColumnUnits c) {
  add_columns<1>(sums, values, indices, s, c);
}
