// Rows of values meet rows of the output without atomic operations on either: the values of an output's row
// are listed first, by counting indices, then added up in registers. Each value is read once, and each row of
// the output written once. After scatter.cuh and memory.cuh.
#pragma once

template <>
struct word<1> {
  typedef uint8 type;
};

/// What all kernels share; the library's RowScatter.
struct RowScatter {
  int64 rows, count;          // of the output; of the values
  int64 width, value_stride;  // elements of a row; from a row of values to the next
  int log_team;               // lanes that share a row
  int chunks;                 // parts of a row's columns, each a block's, where a row meets many values
  int few, unused;            // values of a row, up to which it is a team's
};

constexpr int kListed = 1024;    // rows of a block whose places in the list are found together
constexpr int kTogether = 4;     // rows of values that are under way together
constexpr int kFewRows = 8192;   // of the output, which a block counts in shared memory
constexpr int kCounting = 1024;  // threads of such a block

/// How many values each row will meet, and which of them each value is; ~0: its index is out of range.
extern "C" __global__ void __launch_bounds__(256)
    count_rows(uint32* counts, uint32* ranks, const Index* indices, RowScatter s) {
  KILN_EACH(i, s.count) {
    int64 position;
    ranks[i] = resolve(indices[i], s.rows, position) ? atomicAdd(counts + position, 1u) : ~0u;
  }
}

/// The same where rows are few: each block counts its part of the indices, and takes as many ranks of a row
/// at once. Blocks would wait for the same counters otherwise.
extern "C" __global__ void __launch_bounds__(1024)
    count_few_rows(uint32* counts, uint32* ranks, const Index* indices, RowScatter s, int64 chunk) {
  __shared__ uint32 mine[kFewRows];
  const int64 begin = blockIdx.x * chunk, end = begin + chunk < s.count ? begin + chunk : s.count;
  for (int row = threadIdx.x; row < s.rows; row += kCounting) mine[row] = 0;
  __syncthreads();
#pragma unroll 4
  for (int64 i = begin + threadIdx.x; i < end; i += kCounting) {
    int64 position;
    ranks[i] = resolve(indices[i], s.rows, position) ? atomicAdd(mine + position, 1u) : ~0u;
  }
  __syncthreads();
  for (int row = threadIdx.x; row < s.rows; row += kCounting)
    if (const uint32 counted = mine[row]) mine[row] = atomicAdd(counts + row, counted);
  __syncthreads();
#pragma unroll 4
  for (int64 i = begin + threadIdx.x; i < end; i += kCounting) {
    int64 position;
    if (resolve(indices[i], s.rows, position)) ranks[i] += mine[position];
  }
}

/// Where the values of each row begin in the list (x), and how many they are (y). Blocks take their parts of
/// the list as they come. totals: what is taken of it; how many rows have many values, which `many` names.
extern "C" __global__ void __launch_bounds__(256)
    begin_rows(uint2* spans, const uint32* counts, uint32* many, uint32* totals, RowScatter s) {
  constexpr int kOfThread = kListed / 256;
  __shared__ uint32 before[9];
  const int64 first = int64(blockIdx.x) * kListed + threadIdx.x * kOfThread;
  uint32 count[kOfThread], sum = 0;
#pragma unroll
  for (int j = 0; j < kOfThread; ++j) {
    count[j] = first + j < s.rows ? counts[first + j] : 0;
    sum += count[j];
  }
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  uint32 prefix = sum;
#pragma unroll
  for (int apart = 1; apart < 32; apart *= 2) {
    const uint32 other = __shfl_up_sync(0xffffffffu, prefix, apart);
    if (lane >= apart) prefix += other;
  }
  if (lane == 31) before[warp] = prefix;
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32 all = 0;
    for (int w = 0; w < 8; ++w) {
      const uint32 of_warp = before[w];
      before[w] = all;
      all += of_warp;
    }
    before[8] = all ? atomicAdd(totals, all) : 0;
  }
  __syncthreads();
  uint32 at = before[8] + before[warp] + prefix - sum;
#pragma unroll
  for (int j = 0; j < kOfThread; ++j) {
    if (first + j >= s.rows) continue;
    spans[first + j] = uint2{at, count[j]};
    at += count[j];
    if (count[j] > uint32(s.few)) many[atomicAdd(totals + 1, 1u)] = uint32(first + j);
  }
}

extern "C" __global__ void __launch_bounds__(256)
    list_values(uint32* list, const uint2* spans, const uint32* ranks, const Index* indices, RowScatter s) {
  KILN_EACH(i, s.count) {
    int64 position;
    if (resolve(indices[i], s.rows, position)) list[spans[position].x + ranks[i]] = uint32(i);
  }
}

/// Adjacent elements of a row, and what they have met so far.
template <int N>
struct Met {
  Kept at[N];

  __device__ __forceinline__ void begin(const vec<Element, N>& x) {
#pragma unroll
    for (int v = 0; v < N; ++v) assign(at[v], x.at[v]);
  }
  __device__ __forceinline__ void meet(const vec<Element, N>& x) {
#pragma unroll
    for (int v = 0; v < N; ++v) {
      Kept value;
      assign(value, x.at[v]);
      at[v] = met<kHow>(at[v], value);
    }
  }
  /// Values of the list from `first` on, every `step`-th.
  __device__ __forceinline__ void meet_listed(const Element* column, const uint32* list, int first, int count,
                                              int step, int64 value_stride) {
#pragma unroll 1
    for (int j = first; j < count; j += kTogether * step) {
      vec<Element, N> x[kTogether];
#pragma unroll
      for (int q = 0; q < kTogether; ++q) {
        const int k = j + q * step < count ? j + q * step : j;
        x[q] = load<N>(column + int64(list[k]) * value_stride);
      }
#pragma unroll
      for (int q = 0; q < kTogether; ++q)
        if (j + q * step < count) meet(x[q]);
    }
  }
  __device__ __forceinline__ void write(Element* to) const {
    vec<Element, N> x;
#pragma unroll
    for (int v = 0; v < N; ++v) assign(x.at[v], at[v]);
    store<N>(to, x);
  }
};

template <int N>
__device__ __forceinline__ void combine_rows(Element* out, const Element* x, const Element* values,
                                             const uint32* list, const uint2* spans, const RowScatter& s) {
  const int team = 1 << s.log_team, lane = threadIdx.x & (team - 1);
  const int64 teams = int64(gridDim.x) * blockDim.x >> s.log_team;
  for (int64 row = int64(blockIdx.x) * blockDim.x + threadIdx.x >> s.log_team; row < s.rows; row += teams) {
    const uint2 span = spans[row];
    const int count = int(span.y);
    if (count > s.few || (count == 0 && x == out)) continue;
    const uint32* const mine = list + span.x;
    for (int64 c = lane * N; c < s.width; c += team * N) {
      const vec<Element, N> element = load<N>(x + row * s.width + c);
      if (count == 0) {  // it keeps its bits
        store<N>(out + row * s.width + c, element);
        continue;
      }
      Met<N> all;
      all.begin(element);
      all.meet_listed(values + c, mine, 0, count, 1, s.value_stride);
      all.write(out + row * s.width + c);
    }
  }
}

/// Rows with many values: a block has some columns of one, and each of its parts some of the values.
template <int N>
__device__ __forceinline__ void combine_many(Element* out, const Element* x, const Element* values,
                                             const uint32* list, const uint2* spans, const uint32* many,
                                             const uint32* totals, const RowScatter& s) {
  __shared__ Kept parts[256 * N];
  const int lanes = int((s.width + int64(s.chunks) * N - 1) / (int64(s.chunks) * N)), all_parts = 256 / lanes;
  const int part = threadIdx.x / lanes, lane = threadIdx.x - part * lanes;
  const int64 blocks = int64(totals[1]) * s.chunks;
  for (int64 block = blockIdx.x; block < blocks; block += gridDim.x) {
    const int64 m = index_div(block, int64(s.chunks)), row = many[m];
    const int64 c = ((block - m * s.chunks) * lanes + lane) * N;
    const uint2 span = spans[row];
    const int count = int(span.y), used = all_parts < count ? all_parts : count;
    const bool there = c < s.width && part < used;
    Met<N> all;
    if (there) {
      const uint32* const mine = list + span.x;
      all.begin(load<N>(values + c + int64(mine[part]) * s.value_stride));
      all.meet_listed(values + c, mine, part + all_parts, count, all_parts, s.value_stride);
#pragma unroll
      for (int v = 0; v < N; ++v) parts[threadIdx.x * N + v] = all.at[v];
    }
    __syncthreads();
    if (there && part == 0) {
      all.begin(load<N>(x + row * s.width + c));
      for (int p = 0; p < used; ++p)
#pragma unroll
        for (int v = 0; v < N; ++v) all.at[v] = met<kHow>(all.at[v], parts[(p * lanes + lane) * N + v]);
      all.write(out + row * s.width + c);
    }
    __syncthreads();
  }
}

/// Elements of so many bytes, or one.
constexpr int of_bytes(int bytes) { return bytes > int(sizeof(Element)) ? bytes / int(sizeof(Element)) : 1; }

extern "C" __global__ void __launch_bounds__(256)
    combine_rows_vectors(Element* out, const Element* x, const Element* values, const uint32* list,
                         const uint2* spans, RowScatter s) {
  combine_rows<of_bytes(16)>(out, x, values, list, spans, s);
}
extern "C" __global__ void __launch_bounds__(256)
    combine_many_vectors(Element* out, const Element* x, const Element* values, const uint32* list,
                         const uint2* spans, const uint32* many, const uint32* totals, RowScatter s) {
  combine_many<of_bytes(16)>(out, x, values, list, spans, many, totals, s);
}
extern "C" __global__ void __launch_bounds__(256)
    combine_rows_pairs(Element* out, const Element* x, const Element* values, const uint32* list,
                       const uint2* spans, RowScatter s) {
  combine_rows<of_bytes(8)>(out, x, values, list, spans, s);
}
extern "C" __global__ void __launch_bounds__(256)
    combine_many_pairs(Element* out, const Element* x, const Element* values, const uint32* list,
                       const uint2* spans, const uint32* many, const uint32* totals, RowScatter s) {
  combine_many<of_bytes(8)>(out, x, values, list, spans, many, totals, s);
}
extern "C" __global__ void __launch_bounds__(256)
    combine_rows_elements(Element* out, const Element* x, const Element* values, const uint32* list,
                          const uint2* spans, RowScatter s) {
  combine_rows<1>(out, x, values, list, spans, s);
}
extern "C" __global__ void __launch_bounds__(256)
    combine_many_elements(Element* out, const Element* x, const Element* values, const uint32* list,
                          const uint2* spans, const uint32* many, const uint32* totals, RowScatter s) {
  combine_many<1>(out, x, values, list, spans, many, totals, s);
}
