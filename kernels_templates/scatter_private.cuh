// Values of a small target meet in shared memory first: each block has accumulators of its own, and combines
// them with the output once per unit of work. Threads then seldom wait for each other at one address. After
// scatter_atomic.cuh.
//
// A group is a range of values and the range of places that they alone may reach. A unit is a chunk of a
// group. Lanes of a warp use different copies of the accumulators while there is room for copies.
#pragma once

template <class T>
struct is_integer {
  static const bool value = element<T>::infinity == 0;
};
template <bool First, class A, class B>
struct choose {
  typedef A type;
};
template <class A, class B>
struct choose<false, A, B> {
  typedef B type;
};

/// Max and min compare keys; sums and products of narrow integers wrap in 32 bits as well.
constexpr bool kByKeys = kHow >= 3;
typedef choose<kByKeys || is_integer<Kept>::value, choose<sizeof(Kept) <= 4, uint32, uint64>::type,
               Kept>::type Accumulator;
typedef element<Accumulator>::bits AccumulatorBits;
/// Shared memory adds words of 32 bits: wider integers are two of them.
constexpr bool kInTwoWords = kHow == 1 && is_integer<Kept>::value && sizeof(Accumulator) == 8;

constexpr int kThreads = 512, kSharedBytes = 32 << 10, kAtOnce = 4,
              kAccumulators = kSharedBytes / int(sizeof(Accumulator));

/// What changes nothing that it meets. For min NaN is 0, and no element is ~0; for max NaN is ~0.
__device__ __forceinline__ Accumulator identity() {
  if constexpr (kHow == 1) return is_integer<Kept>::value ? Accumulator(0) : -Accumulator(0);
  if constexpr (kHow == 2) return Accumulator(1);
  return kHow == 3 ? Accumulator(0) : Accumulator(~uint64(0));
}

template <int How, class T>
__device__ __forceinline__ Accumulator accumulated(T value) {
  if constexpr (How >= 3) {
    typedef typename element<T>::bits B;
    const B bits = same_bits<B>(value);
    return How == 4 && is_nan<T>(bits) ? B(0) : key_of<T>(bits, false);
  } else {
    return value;
  }
}
template <int How, class T>
__device__ __forceinline__ T complete(Accumulator x) {
  if constexpr (How >= 3) {
    typedef typename element<T>::bits B;
    const bool nan = How == 4 && !is_integer<T>::value && x == 0;
    return same_bits<T>(nan ? B(element<T>::nan) : bits_of_key<T>(B(x)));
  } else {
    return T(x);
  }
}
__device__ __forceinline__ Accumulator joined(Accumulator x, Accumulator y) {
  if constexpr (kHow == 1) return x + y;
  if constexpr (kHow == 2) return x * y;
  return (kHow == 3) == (x > y) ? x : y;
}

/// The accumulators of a block.
template <class A, bool InTwoWords>
struct PrivateOf {
  uint32* words;

  __device__ __forceinline__ A* at(int i) const { return (A*)words + i; }
  __device__ __forceinline__ void set(int i, A x) const {
    if constexpr (InTwoWords) {
      words[i] = uint32(x);
      words[kAccumulators + i] = uint32(x >> 32);
    } else {
      *at(i) = x;
    }
  }
  __device__ __forceinline__ A get(int i) const {
    if constexpr (InTwoWords)
      return uint64(words[kAccumulators + i]) << 32 | words[i];
    else
      return *at(i);
  }
  __device__ __forceinline__ void meet_at(int i, A x) const {
    if constexpr (InTwoWords) {
      const uint32 before = atomicAdd(words + i, uint32(x));
      const uint32 above = uint32(x >> 32) + (before > ~uint32(x) ? 1u : 0u);
      if (above) atomicAdd(words + kAccumulators + i, above);
    } else if constexpr (kHow == 1) {
      atomicAdd(at(i), x);
    } else if constexpr (kHow == 2) {
      meet<2>(at(i), x);
    } else {
      // Most values change nothing: a read is cheaper than an atomic operation.
      const A seen = *(volatile A*)at(i);
      if (kHow == 3 && x > seen) atomicMax(at(i), x);
      if (kHow == 4 && x < seen) atomicMin(at(i), x);
    }
  }
};
typedef PrivateOf<Accumulator, kInTwoWords> Private;

/// What all units share; the library's PrivateScatter.
struct Units {
  int64 count, chunks;       // of all groups; of a group
  int64 values, chunk;       // of a group; of a unit
  int64 places, all_places;  // of a group; of the output
  int log_copies, unused;    // of each accumulator
};

extern "C" __global__ void __launch_bounds__(512)
    combine_privately(Kept* out, const Element* values, const Index* indices, Grid g, Units units) {
  __shared__ uint64 memory[kSharedBytes / 8];
  const Private mine = {(uint32*)memory};
  const int copies = 1 << units.log_copies, copy = threadIdx.x & (copies - 1);
  for (int64 unit = blockIdx.x; unit < units.count; unit += gridDim.x) {
    const int64 group = index_div(unit, units.chunks), first_place = group * units.places;
    const int64 left = units.all_places - first_place;
    const int places = int(left < units.places ? left : units.places);
    const int64 begin = group * units.values + (unit - group * units.chunks) * units.chunk;
    int64 end = begin + units.chunk;
    if (end > (group + 1) * units.values) end = (group + 1) * units.values;
    if (end > g.count) end = g.count;

    for (int i = threadIdx.x; i < places << units.log_copies; i += kThreads) mine.set(i, identity());
    __syncthreads();
#pragma unroll 1
    for (int64 i = begin + threadIdx.x; i < end; i += kAtOnce * kThreads) {
      Index index[kAtOnce];
      Element value[kAtOnce];
      int64 place[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (i + j * kThreads >= end) continue;
        const Spot s = spot_of(g, i + j * kThreads);
        index[j] = indices[s.index];
        value[j] = values[s.value];
        place[j] = s.place - first_place;
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        int64 position;
        if (i + j * kThreads >= end || !resolve(index[j], g.extent, position)) continue;
        Kept x;
        assign(x, value[j]);
        mine.meet_at(int(place[j] + position * g.place_step) << units.log_copies | copy,
                     accumulated<kHow>(x));
      }
    }
    __syncthreads();
    for (int p = threadIdx.x; p < places; p += kThreads) {
      Accumulator x = identity();
#pragma unroll 1
      for (int c = 0; c < copies; ++c)  // threads begin at different copies, which are in different banks
        x = joined(x, mine.get(p << units.log_copies | ((c + p) & (copies - 1))));
      if (same_bits<AccumulatorBits>(x) != same_bits<AccumulatorBits>(identity()))
        meet<kHow>(out + first_place + p, complete<kHow, Kept>(x));
    }
    __syncthreads();
  }
}
