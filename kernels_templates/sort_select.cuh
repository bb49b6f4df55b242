// The first few of long rows: a warp a row, whose lanes hold the first items of what it has read, in order.
// An element that precedes the last of these waits in shared memory; when a warp has as many waiting as
// lanes, they are sorted and merged. Few elements get so far: of those in any order, item i of n with a
// chance of kept / i. After sort.cuh.
#pragma once

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kAhead = 4;  // elements of a lane whose loads are under way together

__device__ __forceinline__ Held earlier(const Held& a, const Held& b, bool least) {
  return precedes(b, a) == least ? b : a;
}
/// The lanes' items, the last first.
__device__ __forceinline__ Held sorted_backwards(Held x, int lane) {
#pragma unroll
  for (int size = 2; size <= 32; size *= 2)
#pragma unroll
    for (int apart = size / 2; apart > 0; apart /= 2)
      x = earlier(x, from_lane(x, apart), ((lane & apart) == 0) != ((lane & size) == 0));
  return x;
}
/// The first 32 of two sorted sets, in order; `backwards`: the last first.
__device__ __forceinline__ Held first_of(const Held& x, const Held& backwards, int lane) {
  Held first = earlier(x, backwards, true);
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2)
    first = earlier(first, from_lane(first, apart), (lane & apart) == 0);
  return first;
}
__device__ __forceinline__ uint32 of_lane(uint32 x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
__device__ __forceinline__ uint64 of_lane(uint64 x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
__device__ __forceinline__ Wide of_lane(const Wide& x, int lane) {
  return {of_lane(x.key, lane), of_lane(x.position, lane)};
}

/// The first items of what a warp has read of a row.
struct First {
  Held item, last;  // a lane's; of those that are kept
  int waiting;
  Held* queue;  // of two items for each lane

  __device__ __forceinline__ void merge(const Held& more, int lane, int kept) {
    item = first_of(item, sorted_backwards(more, lane), lane);
    last = of_lane(item, kept - 1);
  }
  /// A lane's next item, if it is there.
  __device__ __forceinline__ void read(const Held& next, bool there, int lane, int kept) {
    const bool passes = there && precedes(next, last);
    const uint32 passing = __ballot_sync(0xffffffffu, passes);
    if (passing == 0) return;
    if (passes) queue[waiting + __popc(passing & ((1u << lane) - 1))] = next;
    waiting += __popc(passing);
    __syncwarp();
    if (waiting < 32) return;
    waiting -= 32;
    const Held oldest = queue[lane], newer = queue[32 + lane];
    __syncwarp();
    if (lane < waiting) queue[lane] = newer;
    __syncwarp();
    merge(oldest, lane, kept);
  }
  __device__ __forceinline__ void end(int lane, int kept) {
    if (waiting == 0) return;
    merge(lane < waiting ? queue[lane] : Held(Order::last()), lane, kept);
    __syncwarp();
  }
};

/// Rows whose elements are adjacent, of which up to 32 are kept.
extern "C" __global__ void __launch_bounds__(256)
    select_first(Out* out, const Bits* in, Rows rows, Bits* values) {
  __shared__ Held queues[kWarps][64];
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, length = int(rows.length),
            kept = int(rows.kept);
  for (int64 row = int64(blockIdx.x) * kWarps + warp; row < rows.count; row += int64(gridDim.x) * kWarps) {
    const Bits* const source = begin_in(in, rows, row);
    First first = {Held(Order::last()), Held(Order::last()), 0, queues[warp]};
    bool loses = false;
    for (int begin = lane; begin - lane < length; begin += 32 * kAhead) {
      Bits element[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const int at = begin + 32 * a;
        element[a] = source[at < length ? at : length - 1];
      }
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const int at = begin + 32 * a;
        first.read(Order::make(ordered_key(element[a], rows), at), at < length, lane, kept);
        if (Order::mended) loses |= Equals<Element>::lost(element[a]);
      }
    }
    first.end(lane, kept);
    if (lane < kept) put(out, values, in, rows, row, lane, Item(first.item));
    if constexpr (Order::mended) {
      if (__any_sync(0xffffffffu, loses)) {
        __syncwarp();
        mend_row((Bits*)out, in, rows, row, kept);
      }
    }
  }
}
