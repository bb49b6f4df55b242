// One integer added at every index: a histogram. Blocks count the indices of a chunk in shared memory, in 32
// bits; then the number times the count goes to the output. Places that do not fit are cut into ranges: a
// chunk has a block for each, which leaves out the indices of the others. Blocks of a chunk are adjacent, so
// that all but one read it from a cache. After scatter_atomic.cuh and memory.cuh.
//
// Lanes of a warp use different copies of the counters while there is room for copies.
#pragma once

/// The library's CountUnits.
struct CountUnits {
  int64 count, chunk;   // of indices; of those of a block, a multiple of 16 and less than 2^32
  int64 places, range;  // of the output; of a block
  int ranges, log_copies;
};

extern "C" __global__ void __launch_bounds__(1024)
    count_places(Element* out, const Element* value, const Index* indices, CountUnits units) {
#ifdef KILN_FAKE_DEVICE
  __shared__ uint32 counters[1 << 15];
#else
  extern __shared__ uint32 counters[];
#endif
  constexpr int kLanes = 16 / int(sizeof(Index)), kAtOnce = 4, kThreads = 1024;
  const int copies = 1 << units.log_copies, copy = threadIdx.x & (copies - 1);
  const int64 first = int64(blockIdx.x % units.ranges) * units.range;
  const int places = int(units.places - first < units.range ? units.places - first : units.range);
  const int64 begin = int64(blockIdx.x / units.ranges) * units.chunk;
  const int64 end = begin + units.chunk < units.count ? begin + units.chunk : units.count;
  const auto meet_at = [&](Index index) {
    int64 position;
    if (!resolve(index, units.places, position)) return;
    position -= first;
    if (uint64(position) < uint64(places))
      atomicAdd(counters + (int(position) << units.log_copies | copy), 1u);
  };

  for (int i = threadIdx.x; i < places << units.log_copies; i += kThreads) counters[i] = 0;
  __syncthreads();
  int64 i = begin;
  if ((uint64(indices) & 15) == 0) {
    for (; i + kThreads * kLanes * kAtOnce <= end; i += kThreads * kLanes * kAtOnce) {
      vec<Index, kLanes> x[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        x[k] = load<kLanes>(indices + i + (k * kThreads + threadIdx.x) * kLanes);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
#pragma unroll
        for (int v = 0; v < kLanes; ++v) meet_at(x[k].at[v]);
    }
  }
#pragma unroll 4
  for (i += threadIdx.x; i < end; i += kThreads) meet_at(indices[i]);
  __syncthreads();
  for (int p = threadIdx.x; p < places; p += kThreads) {
    uint32 counted = 0;
#pragma unroll 1
    for (int c = 0; c < copies; ++c)  // threads begin at different copies, which are in different banks
      counted += counters[p << units.log_copies | ((c + p) & (copies - 1))];
    if (counted) meet<1>(out + first + p, product(*value, Element(counted)));
  }
}
