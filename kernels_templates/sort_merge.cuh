// Runs of a row merged by twos, for rows longer than a tile. After sort_tiles.cuh.
#pragma once

/// How many of the first `d` items of two runs in order are of a.
template <class Index>
__device__ __forceinline__ Index split(const Item* a, Index length_a, const Item* b, Index length_b,
                                       Index d) {
  Index low = d > length_b ? d - length_b : 0, high = d < length_a ? d : length_a;
#pragma unroll 1
  while (low < high) {
    const Index middle = (low + high) / 2;
    if (b[d - 1 - middle] < a[middle])
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

constexpr int kThreads = 256, kPerThread = 2048 / kThreads, kChunk = kThreads * kPerThread;

/// Runs 2r and 2r + 1 of every row become run r. They are of `span` elements, `distance` items apart,
/// `before` in a row; `after` come out, `apart` items apart, or to `out`, the first of them. A block takes
/// kChunk items of the result.
extern "C" __global__ void __launch_bounds__(256)
    merge_runs(Item* to, Out* out, const Item* runs, Rows rows, int64 span, int64 before, int64 distance,
               int64 after, int64 apart, Bits* values, const Bits* in) {
  __shared__ Item items[kChunk];
  __shared__ int64 ends[2];
  const int64 chunks = (apart + kChunk - 1) / kChunk, jobs = rows.count * after * chunks;
  for (int64 job = blockIdx.x; job < jobs; job += gridDim.x) {
    const int64 pair = index_div(job, chunks), row = index_div(pair, after), r = pair - row * after;
    const int64 length_a = run_length(rows, 2 * r, span), length_b = run_length(rows, 2 * r + 1, span);
    const int64 both = length_a + length_b, length = both < apart ? both : apart;
    const int64 begin = (job - pair * chunks) * kChunk;
    if (begin >= length) continue;
    const int64 end = begin + kChunk < length ? begin + kChunk : length;
    const Item *const a = runs + (row * before + 2 * r) * distance, *const b = a + distance;
    if (threadIdx.x % 32 == 0 && threadIdx.x < 64)
      ends[threadIdx.x / 32] = split(a, length_a, b, length_b, threadIdx.x ? end : begin);
    __syncthreads();
    const int64 from_a = ends[0], from_b = begin - from_a;
    const int count_a = int(ends[1] - from_a), count = int(end - begin);
#pragma unroll 1
    for (int i = threadIdx.x; i < count; i += kThreads)
      items[i] = i < count_a ? a[from_a + i] : b[from_b + i - count_a];
    __syncthreads();
    const int mine = int(threadIdx.x) * kPerThread < count ? int(threadIdx.x) * kPerThread : count;
    int i = split(items, count_a, items + count_a, count - count_a, mine), j = count_a + mine - i;
    Item merged[kPerThread];
#pragma unroll
    for (int k = 0; k < kPerThread; ++k) {
      const bool first = j >= count || (i < count_a && !(items[j] < items[i]));
      const int taken = first ? i++ : j++;
      merged[k] = items[taken < count ? taken : 0];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kPerThread; ++k)
      if (mine + k < count) items[mine + k] = merged[k];
    __syncthreads();
#pragma unroll 1
    for (int t = threadIdx.x; t < count; t += kThreads) {
      if (to)
        to[pair * apart + begin + t] = items[t];
      else
        put(out, values, in, rows, row, begin + t, items[t]);
    }
    __syncthreads();
  }
}
