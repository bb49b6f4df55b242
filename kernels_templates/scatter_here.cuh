// Many values of so few rows that a block has sums of all of them in shared memory: rows of values are added
// there by vectors, each of which one atomic operation exchanges, and to the output once. In the second cache
// few sums would wait for each other. After scatter_columns.cuh.
#pragma once

template <class T, int N>
__device__ __forceinline__ void add_here(T* at, const vec<T, N>& x) {
#pragma unroll
  for (int v = 0; v < N; ++v) atomicAdd(at + v, x.at[v]);
}
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void add_here(float* to, const vec<float, 4>& x) {
  union Four {
    vec<float, 4> elements;
    uint64 halves[2];
  } seen, next, found;
  const unsigned int at = (unsigned int)__cvta_generic_to_shared(to);
  asm volatile("ld.volatile.shared.v2.b64 {%0, %1}, [%2];"
               : "=l"(seen.halves[0]), "=l"(seen.halves[1])
               : "r"(at)
               : "memory");
  for (;;) {
#pragma unroll
    for (int v = 0; v < 4; ++v) next.elements.at[v] = seen.elements.at[v] + x.at[v];
    asm volatile(
        "{\n.reg .b128 seen, next, found;\nmov.b128 seen, {%3, %4};\nmov.b128 next, {%5, %6};\n"
        "atom.relaxed.cta.shared.cas.b128 found, [%2], seen, next;\nmov.b128 {%0, %1}, found;\n}"
        : "=l"(found.halves[0]), "=l"(found.halves[1])
        : "r"(at), "l"(seen.halves[0]), "l"(seen.halves[1]), "l"(next.halves[0]), "l"(next.halves[1])
        : "memory");
    if (found.halves[0] == seen.halves[0] && found.halves[1] == seen.halves[1]) return;
    seen = found;
  }
}
__device__ __forceinline__ void add_here(float* to, const vec<float, 2>& x) {
  uint64* const at = (uint64*)to;
  uint64 seen = *(volatile uint64*)at;
  for (;;) {
    const vec<float, 2> sums = same_bits<vec<float, 2>>(seen);
    const vec<float, 2> next = {{sums.at[0] + x.at[0], sums.at[1] + x.at[1]}};
    const uint64 found = atomicCAS(at, seen, same_bits<uint64>(next));
    if (found == seen) return;
    seen = found;
  }
}
#endif

constexpr int kHere = 1024;  // threads of a block

/// A block adds `chunk` rows of values.
template <int N, bool Whole, int AtOnce>
__device__ __forceinline__ void add_rows_here(Kept* sums, const Element* values, const Index* indices,
                                              const RowSums& s, int chunk) {
  Kept* const mine = private_sums();
  const int all_sums = int(s.rows) * s.vectors;
  vec<Kept, N> none;
#pragma unroll
  for (int v = 0; v < N; ++v) none.at[v] = -Kept(0);
  for (int i = threadIdx.x; i < all_sums; i += kHere) store(mine + i * N, none);
  __syncthreads();
  const int64 begin = int64(blockIdx.x) * chunk, left = s.count - begin;
  const int all = int(left < chunk ? left : chunk) * s.vectors;
  values += begin * s.value_stride;
  indices += begin;
#pragma unroll 1
  for (int first = threadIdx.x; first < all; first += AtOnce * kHere) {
    Index index[AtOnce];
    vec<Element, N> elements[AtOnce];
    int at[AtOnce];
#pragma unroll
    for (int j = 0; j < AtOnce; ++j) {
      const int i = first + j * kHere, mine_of = i < all ? i : all - 1,
                row = index_div(mine_of, s.vectors, s.inverse);
      at[j] = (mine_of - row * s.vectors) * N;
      index[j] = indices[row];
      elements[j] = values_of<N, Whole>(values + row * s.value_stride, at[j], s);
    }
#pragma unroll
    for (int j = 0; j < AtOnce; ++j) {
      int64 position;
      if (first + j * kHere >= all || !resolve(index[j], s.rows, position)) continue;
      add_here(mine + int(position) * int(s.pitch) + at[j], as_kept(elements[j]));
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < all_sums; i += kHere) add_vector(sums + i * N, load<N>(mine + i * N));
}
extern "C" __global__ void __launch_bounds__(1024)
    add_whole_rows_here(Kept* sums, const Element* values, const Index* indices, RowSums s, int chunk) {
  add_rows_here<4, true, 2>(sums, values, indices, s, chunk);
}
extern "C" __global__ void __launch_bounds__(1024)
    add_rows_here_by_fours(Kept* sums, const Element* values, const Index* indices, RowSums s, int chunk) {
  add_rows_here<4, false, 2>(sums, values, indices, s, chunk);
}
extern "C" __global__ void __launch_bounds__(1024)
    add_rows_here_by_pairs(Kept* sums, const Element* values, const Index* indices, RowSums s, int chunk) {
  add_rows_here<2, false, 4>(sums, values, indices, s, chunk);
}
extern "C" __global__ void __launch_bounds__(1024)
    add_rows_here_by_ones(Kept* sums, const Element* values, const Index* indices, RowSums s, int chunk) {
  add_rows_here<1, true, 8>(sums, values, indices, s, chunk);
}
