// Sums of four neighbours at a time, for elements kept in 32 bits. After scatter_atomic.cuh and memory.cuh.
#pragma once

template <class T>
__device__ __forceinline__ void add_vector(T* at, const vec<T, 4>& x) {
#pragma unroll
  for (int v = 0; v < 4; ++v) atomicAdd(at + v, x.at[v]);
}
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void add_vector(float* at, const vec<float, 4>& x) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at), "f"(x.at[0]),
               "f"(x.at[1]), "f"(x.at[2]), "f"(x.at[3])
               : "memory");
}
#endif

/// The grid's last axis goes over groups of four that lie side by side, and begin where as wide accesses may.
extern "C" __global__ void __launch_bounds__(256)
    combine_vectors(Kept* out, const Element* values, const Index* indices, Grid g) {
  const int64 block = kMetAtOnce * int64(blockDim.x);
  for (int64 first = blockIdx.x * block + threadIdx.x; first < g.count; first += gridDim.x * block) {
    Index index[kMetAtOnce];
    vec<Element, 4> elements[kMetAtOnce];
    int64 place[kMetAtOnce];
#pragma unroll
    for (int j = 0; j < kMetAtOnce; ++j) {
      const int64 i = first + j * blockDim.x;
      const Spot s = spot_of(g, i < g.count ? i : g.count - 1);
      index[j] = indices[s.index];
      elements[j] = load<4>(values + s.value);
      place[j] = s.place;
    }
#pragma unroll
    for (int j = 0; j < kMetAtOnce; ++j) {
      int64 position;
      if (first + j * blockDim.x >= g.count || !resolve(index[j], g.extent, position)) continue;
      vec<Kept, 4> x;
#pragma unroll
      for (int v = 0; v < 4; ++v) assign(x.at[v], elements[j].at[v]);
      add_vector(out + place[j] + position * g.place_step, x);
    }
  }
}

/// As combine_vectors(), for indices in a range of positions.
extern "C" __global__ void __launch_bounds__(256)
    combine_vectors_range(Kept* out, const Element* values, const Index* indices, Grid g, int64 low,
                          int64 high) {
  each_in_range(
      indices, g, low, high, [&](int64 at) { return load<4>(values + at); },
      [&](int64 place, const vec<Element, 4>& value) {
        vec<Kept, 4> x;
#pragma unroll
        for (int v = 0; v < 4; ++v) assign(x.at[v], value.at[v]);
        add_vector(out + place, x);
      });
}
