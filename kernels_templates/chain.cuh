// A chain of items: a block takes several that follow each other, one a warp, finds their totals, tells what
// comes behind, and learns the total of all that came before. Items are given out in ascending order, so that
// whatever a block waits for is already being worked on. `counters`: turns given out, blocks that have left,
// turns done, nothing, then words of 8 bytes; all 0 before the launch and after it.
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
/// `apart`: words between those of a value.
template <class T>
__device__ __forceinline__ void publish(volatile unsigned long long* at, T value, int apart = 1) {
  Published<T> x = {};
  x.value = value;
#pragma unroll
  for (int w = 0; w < Published<T>::kWords; ++w) at[w * apart] = 1ull << 32 | x.words[w];
}
/// Several values at a time, of which those that `wanted` says are waited for.
template <class T, int Values, class At, class Wanted>
__device__ __forceinline__ void wait_for(Published<T> (&x)[Values], At at, Wanted wanted, int apart = 1) {
  bool there;
  do {
    there = true;
#pragma unroll
    for (int i = 0; i < Values; ++i) {
      if (!wanted(i)) continue;
      const volatile unsigned long long* const from = at(i);
#pragma unroll
      for (int w = 0; w < Published<T>::kWords; ++w) {
        const unsigned long long word = from[w * apart];
        x[i].words[w] = (unsigned int)word;
        there = there && word >> 32 != 0;
      }
    }
  } while (!there);
}
template <class T>
__device__ __forceinline__ T wait_for(const volatile unsigned long long* at) {
  Published<T> x[1] = {};
  wait_for(x, [&](int) { return at; }, [](int) { return true; });
  return x[0].value;
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

/// Totals down columns, of which each thread has `Lanes`; a block has them side by side. Of each column and
/// turn there are two values among the words, as along rows. All threads wait for what was told: each for one
/// column's, a part of the turns.
template <class Op, int Threads, int Lanes, class T>
struct ColumnTotals {
  typedef decltype(Op::lift(T())) Part;
  static constexpr int kWarps = Threads / 32, kColumns = 32 * Lanes, kParts = Threads / kColumns, kGroup = 16,
                       kNear = kGroup / kParts, kWords = Published<T>::kWords;
  static_assert(kParts * kColumns == Threads && kNear * kParts == kGroup, "threads without a part");
  struct Memory {  // of a block, for all its scans one after the other
    Part inside[kWarps][kColumns], near[kParts][kColumns], far[kParts][kColumns], earlier[kColumns];
  };
  Part all;  // of the turn: a column's, of a block's first threads

  static __device__ __forceinline__ unsigned long long* at(unsigned int* words, unsigned int turn,
                                                           int which) {
    return reinterpret_cast<unsigned long long*>(words) +
           ((unsigned long long)(2 * turn + which) * kWords * kColumns + threadIdx.x % kColumns);
  }
  /// To x, values of up to `Values` turns: of those below `end`, from `first` on.
  template <int Values, class TurnOf>
  static __device__ __forceinline__ void add(unsigned int* words, int which, unsigned int first,
                                             unsigned int by, unsigned int end, TurnOf turn_of, Part& x) {
    Published<T> told[Values];
    const auto there = [&](int i) { return first + i * by < end; };
    wait_for(told, [&](int i) { return at(words, turn_of(first + i * by), which); }, there, kColumns);
#pragma unroll
    for (int i = 0; i < Values; ++i)
      if (there(i)) x = Op::of(Op::lift(told[i].value), x);
  }

  /// Tells the others; `own` are the totals of this warp's item.
  __device__ __forceinline__ void tell(void* memory, unsigned int* words, unsigned int turn,
                                       const T (&own)[Lanes], Part none) {
    Memory& m = *static_cast<Memory*>(memory);
    const int warp = threadIdx.x / 32, column = threadIdx.x % 32 * Lanes;
#pragma unroll
    for (int v = 0; v < Lanes; ++v) m.inside[warp][column + v] = Op::lift(own[v]);
    __syncthreads();
    if (threadIdx.x >= kColumns) return;
    all = none;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      Part& of_warp = m.inside[w][threadIdx.x];
      const Part later = of_warp;
      of_warp = all;
      all = Op::of(later, all);
    }
    publish(at(words, turn, 0), Op::show(all), kColumns);
  }
  /// What comes before this warp's item, where `before` turns of the same columns came before this one.
  /// `turn_of`: their numbers.
  template <class TurnOf>
  __device__ __forceinline__ void hear(void* memory, unsigned int* words, unsigned int turn,
                                       unsigned int before, TurnOf turn_of, T (&out)[Lanes], Part none) {
    Memory& m = *static_cast<Memory*>(memory);
    const int part = threadIdx.x / kColumns, own = threadIdx.x % kColumns;
    const unsigned int groups = before / kGroup, rank = before % kGroup;
    Part x = none;
    add<kNear>(words, 0, before - rank + part * kNear, 1, before, turn_of, x);
    m.near[part][own] = x;
    __syncthreads();
    if (threadIdx.x < kColumns) {
      x = none;
#pragma unroll
      for (int p = 0; p < kParts; ++p) x = Op::of(m.near[p][own], x);
      if (rank == kGroup - 1) publish(at(words, turn, 1), Op::show(Op::of(all, x)), kColumns);
      m.earlier[own] = x;
    }
    const auto last_of = [&](unsigned int g) { return turn_of(g * kGroup + kGroup - 1); };
    x = none;
    for (unsigned int g = part; g < groups; g += kNear * kParts)
      add<kNear>(words, 1, g, kParts, groups, last_of, x);
    m.far[part][own] = x;
    __syncthreads();
    const int warp = threadIdx.x / 32, column = threadIdx.x % 32 * Lanes;
#pragma unroll
    for (int v = 0; v < Lanes; ++v) {
      x = none;
#pragma unroll
      for (int p = 0; p < kParts; ++p) x = Op::of(m.far[p][column + v], x);
      out[v] = Op::show(Op::of(m.inside[warp][column + v], Op::of(m.earlier[column + v], x)));
    }
  }
};

/// At the end of a block that took so many turns. Once all turns are done it clears its share of the `words`
/// behind the counters, and the last one the counters: both are left as they were found.
__device__ __forceinline__ void leave_chain(unsigned int* counters, unsigned int turns, unsigned int words,
                                            unsigned int taken) {
  __threadfence();  // what this block told is there before anybody clears it
  __syncthreads();
  if (threadIdx.x == 0) {
    atomicAdd(counters + 2, taken);
    while (*(const volatile unsigned int*)(counters + 2) != turns) {
    }
  }
  __syncthreads();
  unsigned long long* const told = reinterpret_cast<unsigned long long*>(counters + 4);
  for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < words / 2u; i += gridDim.x * blockDim.x)
    told[i] = 0ull;
  if (threadIdx.x == 0 && atomicAdd(counters + 1, 1u) == gridDim.x - 1)
    counters[0] = counters[1] = counters[2] = 0u;
}
