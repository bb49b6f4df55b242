// A chain of items: a block takes several that follow each other, one a warp, finds their totals, tells what
// comes behind, and learns the total of all that came before. Items are given out in ascending order, so that
// whatever a block waits for is already being worked on. `counters`: blocks' turns given out, blocks that
// have left, then words of 8 bytes; all 0 before the launch and after it.
//
// A value that others wait for is in one word for each 4 bytes of it, beside a mark that it is there: who
// sees the mark has the value. The totals of 64 turns that follow each other are added to one more, so that a
// turn reads few. Who adds what depends on a turn's number alone.
#pragma once

/// A monoid whose values are their own parts, as custom ones are.
template <class Op, class T>
struct Plain {
  static __device__ __forceinline__ T lift(T x) { return x; }
  static __device__ __forceinline__ T of(T later, T earlier) { return Op::of(later, earlier); }
  static __device__ __forceinline__ T show(T x) { return x; }
};

/// The next turn, for all threads of the block.
__device__ __forceinline__ unsigned int next_turn(unsigned int* counters) {
  __shared__ unsigned int turn;
  __syncthreads();
  if (threadIdx.x == 0) turn = atomicAdd(counters, 1u);
  __syncthreads();
  return turn;
}

template <class T>
union Published {
  T value;
  unsigned int words[sizeof(T) > 4 ? 2 : 1];
  static constexpr int kWords = sizeof(T) > 4 ? 2 : 1;
};
template <class T>
__device__ __forceinline__ void publish(volatile unsigned long long* at, T value) {
  Published<T> x = {};
  x.value = value;
#pragma unroll
  for (int w = 0; w < Published<T>::kWords; ++w) at[w] = 1ull << 32 | x.words[w];
}
template <class T>
__device__ __forceinline__ T wait_for(const volatile unsigned long long* at) {
  Published<T> x = {};
#pragma unroll
  for (int w = 0; w < Published<T>::kWords; ++w) {
    unsigned long long word;
    while (((word = at[w]) >> 32) == 0) {
    }
    x.words[w] = (unsigned int)word;
  }
  return x.value;
}

/// Totals along rows. Of each turn there are two values among the words: its own total, and if it is the last
/// of its group the group's.
template <class Op, int Threads, class T>
struct RowTotals {
  typedef decltype(Op::lift(T())) Part;
  static constexpr int kWarps = Threads / 32, kGroup = 64, kWords = Published<T>::kWords;
  static_assert(kWarps > 1, "turns and groups of them are waited for by different warps");
  Part inside, all;  // of the turn's items before this warp's; of the turn

  static __device__ __forceinline__ unsigned long long* at(unsigned int* words, unsigned int turn) {
    return reinterpret_cast<unsigned long long*>(words) + 2 * kWords * turn;
  }
  /// Tells the others; `own` is the total of this warp's item.
  __device__ __forceinline__ void tell(unsigned int* words, unsigned int turn, T own, Part none) {
    __shared__ Part parts[kWarps];
    const int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) parts[warp] = Op::lift(own);
    __syncthreads();
    inside = all = none;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (w == warp) inside = all;
      all = Op::of(parts[w], all);
    }
    if (threadIdx.x == 0) publish(at(words, turn), Op::show(all));
  }
  /// What comes before this warp's item, where `before` turns of the same row came before this one.
  __device__ __forceinline__ T hear(unsigned int* words, unsigned int turn, unsigned int before, Part none) {
    __shared__ Part earlier[2];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned int groups = before / kGroup, rank = before % kGroup;
    if (warp < 2) {
      Part x = none;
      if (warp == 0) {
#pragma unroll
        for (unsigned int t = lane; t < kGroup; t += 32)
          if (t < rank) x = Op::of(Op::lift(wait_for<T>(at(words, turn - rank + t))), x);
      } else {
#pragma unroll 4
        for (unsigned int g = lane; g < groups; g += 32)
          x = Op::of(Op::lift(wait_for<T>(at(words, turn - before + g * kGroup + kGroup - 1) + kWords)), x);
      }
      x = reduce_lanes<Op, 32>(x, 0xffffffffu);
      if (threadIdx.x == 0 && rank == kGroup - 1) publish(at(words, turn) + kWords, Op::show(Op::of(all, x)));
      if (lane == 0) earlier[warp] = x;
    }
    __syncthreads();
    return Op::show(Op::of(inside, Op::of(earlier[0], earlier[1])));
  }
};

/// The size of the largest type.
template <class T, class... Others>
constexpr int most_bytes() {
  int bytes = sizeof(T);
  if constexpr (sizeof...(Others) > 0)
    if (most_bytes<Others...>() > bytes) bytes = most_bytes<Others...>();
  return bytes;
}

/// Totals down columns, of which each thread has `Lanes`: values are in `told`, two of each column for each
/// turn, and a flag for each of these says that they are there.
template <class Op, int Threads, int Lanes, class T>
struct ColumnTotals {
  typedef decltype(Op::lift(T())) Part;
  static constexpr int kWarps = Threads / 32, kGroup = 16;
  typedef Part OfWarps[kWarps][Lanes][32];
  struct Memory {  // of a block, for all its scans one after the other
    OfWarps near, far;
  };
  Part inside[Lanes], all[Lanes];

  static __device__ __forceinline__ unsigned int at(unsigned int t, int v) {
    return (t * Lanes + v) * 32 + threadIdx.x % 32;
  }
  static __device__ __forceinline__ void store_totals(volatile T* told, unsigned int* flags, unsigned int t,
                                                      const Part (&x)[Lanes]) {
#pragma unroll
    for (int v = 0; v < Lanes; ++v) told[at(t, v)] = Op::show(x[v]);
    __threadfence();
    __syncwarp();
    if (threadIdx.x % 32 == 0) *(volatile unsigned int*)(flags + t) = 1u;
  }
  static __device__ __forceinline__ void add_totals(const volatile T* told, const unsigned int* flags,
                                                    unsigned int t, Part (&x)[Lanes]) {
    while (*(const volatile unsigned int*)(flags + t) == 0u) {
    }
    __threadfence();
#pragma unroll
    for (int v = 0; v < Lanes; ++v) x[v] = Op::of(Op::lift(told[at(t, v)]), x[v]);
  }
  static __device__ __forceinline__ void of_warps(const OfWarps& from, Part none, Part (&x)[Lanes]) {
#pragma unroll
    for (int v = 0; v < Lanes; ++v) {
      x[v] = none;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) x[v] = Op::of(from[w][v][threadIdx.x % 32], x[v]);
    }
  }

  __device__ __forceinline__ void tell(void* memory, volatile T* told, unsigned int* flags, unsigned int turn,
                                       const T (&own)[Lanes], Part none) {
    OfWarps& parts = static_cast<Memory*>(memory)->far;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int v = 0; v < Lanes; ++v) parts[warp][v][lane] = Op::lift(own[v]);
    __syncthreads();
#pragma unroll
    for (int v = 0; v < Lanes; ++v) {
      inside[v] = all[v] = none;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        if (w == warp) inside[v] = all[v];
        all[v] = Op::of(parts[w][v][lane], all[v]);
      }
    }
    if (warp == 0) store_totals(told, flags, 2 * turn, all);
  }
  /// `turn_of`: the number of the turns of these columns.
  template <class TurnOf>
  __device__ __forceinline__ void hear(void* memory, volatile T* told, unsigned int* flags, unsigned int turn,
                                       unsigned int before, TurnOf turn_of, T (&out)[Lanes], Part none) {
    OfWarps &near = static_cast<Memory*>(memory)->near, &far = static_cast<Memory*>(memory)->far;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned int groups = before / kGroup, rank = before % kGroup;
    Part x[Lanes];
#pragma unroll
    for (int v = 0; v < Lanes; ++v) x[v] = none;
    for (unsigned int b = warp; b < rank; b += kWarps)
      add_totals(told, flags, 2 * turn_of(before - rank + b), x);
#pragma unroll
    for (int v = 0; v < Lanes; ++v) near[warp][v][lane] = x[v];
    __syncthreads();
    Part earlier[Lanes];
    of_warps(near, none, earlier);
    if (warp == 0 && rank == kGroup - 1) {
#pragma unroll
      for (int v = 0; v < Lanes; ++v) all[v] = Op::of(all[v], earlier[v]);
      store_totals(told, flags, 2 * turn + 1, all);
    }
#pragma unroll
    for (int v = 0; v < Lanes; ++v) x[v] = none;
    for (unsigned int g = warp; g < groups; g += kWarps)
      add_totals(told, flags, 2 * turn_of(g * kGroup + kGroup - 1) + 1, x);
#pragma unroll
    for (int v = 0; v < Lanes; ++v) far[warp][v][lane] = x[v];
    __syncthreads();
    of_warps(far, none, x);
#pragma unroll
    for (int v = 0; v < Lanes; ++v) out[v] = Op::show(Op::of(inside[v], Op::of(earlier[v], x[v])));
  }
};

/// At the end of a block; the last one leaves the counters as it found them.
__device__ __forceinline__ void leave_chain(unsigned int* counters, unsigned int count) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(counters + 1, 1u) == gridDim.x - 1;
  __syncthreads();
  if (!last) return;
  for (unsigned int i = threadIdx.x; i < (count + 1u) / 2u; i += blockDim.x)
    reinterpret_cast<unsigned long long*>(counters)[i] = 0ull;
}
