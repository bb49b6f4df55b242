// Rows of floats that are added to rows which the second cache has: by vectors, several of which a device
// adds as quickly as it reads them. Where rows are no whole vectors, or halves, sums lie beside the output.
// After scatter.cuh and memory.cuh.
#pragma once

constexpr int kMetAtOnce = 4;  // vectors of a thread whose loads are under way together; the library's

template <class T, int N>
__device__ __forceinline__ void add_vector(T* at, const vec<T, N>& x) {
#pragma unroll
  for (int v = 0; v < N; ++v) atomicAdd(at + v, x.at[v]);
}
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void add_vector(float* at, const vec<float, 4>& x) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at), "f"(x.at[0]),
               "f"(x.at[1]), "f"(x.at[2]), "f"(x.at[3])
               : "memory");
}
__device__ __forceinline__ void add_vector(float* at, const vec<float, 2>& x) {
  asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(at), "f"(x.at[0]), "f"(x.at[1])
               : "memory");
}
#endif

/// The same pointer, for what is read once beside sums that are to stay in the second cache.
template <class T>
__device__ __forceinline__ const T* leaves_first(const T* p) {
#if __CUDA_ARCH__ == 900
  unsigned long long first;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first));
  return static_cast<const T*>(__nv_associate_access_property_impl(p, first));
#else
  return p;
#endif
}

/// Whole rows of values that are added to rows of sums; the library's RowSums.
struct RowSums {
  int64 rows, count;          // of the output; of the values
  int64 width, value_stride;  // elements of a row; from a row of values to the next
  int64 pitch;                // of the sums, whole vectors: those beside the output have room for such
  int vectors, inverse;       // of a row of sums, and index_div's number for them
};

/// A row's values from `at` on. Not Whole: the last of them may not be there, and are 0.
template <int N, bool Whole>
__device__ __forceinline__ vec<Element, N> values_of(const Element* row, int at, const RowSums& s) {
  if constexpr (Whole) {
    return load<N>(row + at);
  } else {
    vec<Element, N> x;
#pragma unroll
    for (int v = 0; v < N; ++v) x.at[v] = at + v < s.width ? row[at + v] : Element{};
    return x;
  }
}
template <int N>
__device__ __forceinline__ vec<Kept, N> as_kept(const vec<Element, N>& x) {
  vec<Kept, N> y;
#pragma unroll
  for (int v = 0; v < N; ++v) assign(y.at[v], x.at[v]);
  return y;
}

/// All vectors of all rows, fewer than 2^31; Whole: the values' rows are vectors too.
template <int N, bool Whole>
__device__ __forceinline__ void add_rows(Kept* sums, const Element* values, const Index* indices,
                                         const RowSums& s) {
  values = leaves_first(values);
  indices = leaves_first(indices);
  const unsigned int all = (unsigned int)(s.count) * s.vectors, block = kMetAtOnce * blockDim.x;
  for (unsigned int first = blockIdx.x * block + threadIdx.x; first < all; first += gridDim.x * block) {
    Index index[kMetAtOnce];
    vec<Element, N> elements[kMetAtOnce];
    int at[kMetAtOnce];
#pragma unroll
    for (int j = 0; j < kMetAtOnce; ++j) {
      const unsigned int i = first + j * blockDim.x;
      const int mine = int(i < all ? i : all - 1), row = index_div(mine, s.vectors, s.inverse);
      at[j] = (mine - row * s.vectors) * N;
      index[j] = indices[row];
      elements[j] = values_of<N, Whole>(values + row * s.value_stride, at[j], s);
    }
#pragma unroll
    for (int j = 0; j < kMetAtOnce; ++j) {
      int64 position;
      if (first + j * blockDim.x >= all || !resolve(index[j], s.rows, position)) continue;
      add_vector(sums + position * s.pitch + at[j], as_kept(elements[j]));
    }
  }
}
extern "C" __global__ void __launch_bounds__(256)
    add_whole_rows(Kept* sums, const Element* values, const Index* indices, RowSums s) {
  add_rows<4, true>(sums, values, indices, s);
}
extern "C" __global__ void __launch_bounds__(256)
    add_rows_by_fours(Kept* sums, const Element* values, const Index* indices, RowSums s) {
  add_rows<4, false>(sums, values, indices, s);
}
extern "C" __global__ void __launch_bounds__(256)
    add_rows_by_pairs(Kept* sums, const Element* values, const Index* indices, RowSums s) {
  add_rows<2, false>(sums, values, indices, s);
}
extern "C" __global__ void __launch_bounds__(256)
    add_rows_by_ones(Kept* sums, const Element* values, const Index* indices, RowSums s) {
  add_rows<1, true>(sums, values, indices, s);
}

/// Whether rows of x or of the output are whole vectors of N elements.
template <int N>
__device__ __forceinline__ bool has_vectors(const Element* p, const RowSums& s) {
  return s.width % N == 0 && (unsigned long long)p % (N * sizeof(Element)) == 0;
}
template <int N>
__device__ __forceinline__ void begin(Kept* sums, const Element* x, const RowSums& s) {
  const bool whole = has_vectors<N>(x, s);
  KILN_EACH(i, s.rows * s.vectors) {
    const int row = index_div(int(i), s.vectors, s.inverse), at = (int(i) - row * s.vectors) * N;
    const int64 first = row * s.width + at;
    vec<Kept, N> sum = {};
    if (whole) {
      const vec<Element, N> elements = load<N>(x + first);
#pragma unroll
      for (int v = 0; v < N; ++v) assign(sum.at[v], elements.at[v]);
    } else {
#pragma unroll
      for (int v = 0; v < N; ++v)
        if (at + v < s.width) assign(sum.at[v], x[first + v]);
    }
    store(sums + i * N, sum);
  }
}
/// Elements that no value met keep their bits.
template <int N>
__device__ __forceinline__ void end(Element* out, const Element* x, const Kept* sums, const RowSums& s) {
  const bool whole = has_vectors<N>(x, s) && has_vectors<N>(out, s);
  const auto ended = [](Element element, Kept sum) {
    Kept before;
    assign(before, element);
    if (same_bits<KeptBits>(before) != same_bits<KeptBits>(sum)) assign(element, sum);
    return element;
  };
  KILN_EACH(i, s.rows * s.vectors) {
    const int row = index_div(int(i), s.vectors, s.inverse), at = (int(i) - row * s.vectors) * N;
    const int64 first = row * s.width + at;
    const vec<Kept, N> sum = load<N>(sums + i * N);
    if (whole) {
      vec<Element, N> elements = load<N>(x + first);
#pragma unroll
      for (int v = 0; v < N; ++v) elements.at[v] = ended(elements.at[v], sum.at[v]);
      store(out + first, elements);
    } else {
#pragma unroll
      for (int v = 0; v < N; ++v)
        if (at + v < s.width) out[first + v] = ended(x[first + v], sum.at[v]);
    }
  }
}
extern "C" __global__ void __launch_bounds__(256) begin_sums(Kept* sums, const Element* x, RowSums s) {
  s.width == 1 ? begin<1>(sums, x, s) : s.width == 2 ? begin<2>(sums, x, s) : begin<4>(sums, x, s);
}
extern "C" __global__ void __launch_bounds__(256)
    end_sums(Element* out, const Element* x, const Kept* sums, RowSums s) {
  s.width == 1 ? end<1>(out, x, sums, s) : s.width == 2 ? end<2>(out, x, sums, s) : end<4>(out, x, sums, s);
}
