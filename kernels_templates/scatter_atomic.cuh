// Values meet elements by atomic operations, in any order.
#pragma once

__device__ __forceinline__ uint16 exchange(uint16* at, uint16 seen, uint16 next) {
  return atomicCAS(at, seen, next);
}
__device__ __forceinline__ uint32 exchange(uint32* at, uint32 seen, uint32 next) {
  return atomicCAS(at, seen, next);
}
__device__ __forceinline__ uint64 exchange(uint64* at, uint64 seen, uint64 next) {
  return atomicCAS(at, seen, next);
}
/// By the pair of bytes that it is in.
__device__ __forceinline__ uint8 exchange(uint8* at, uint8 seen, uint8 next) {
  uint16* const pair = (uint16*)((uint64)at & ~1ull);
  const int shift = 8 * int((uint64)at & 1);
  uint16 both = *(volatile uint16*)pair;
  while (uint8(both >> shift) == seen) {
    const uint16 changed = uint16((both & ~(0xff << shift)) | next << shift);
    const uint16 found = atomicCAS(pair, both, changed);
    if (found == both) return seen;
    both = found;
  }
  return uint8(both >> shift);
}

template <int How, class T>
__device__ __forceinline__ void meet(T* element_at, T value) {
  if constexpr (How == 1 && sizeof(T) >= 4) {
    atomicAdd(element_at, value);
  } else {
    typedef typename element<T>::bits B;
    B* const at = (B*)element_at;
    B seen = *(volatile B*)at;
    for (;;) {
      const B next = same_bits<B>(met<How>(same_bits<T>(seen), value));
      if (next == seen) return;
      const B found = exchange(at, seen, next);
      if (found == seen) return;
      seen = found;
    }
  }
}

/// What leaves the caches first.
template <class T>
__device__ __forceinline__ T read_once(const T* p) {
#ifdef KILN_FAKE_DEVICE
  return *p;
#else
  if constexpr (sizeof(T) == 8) return same_bits<T>(__ldcs((const uint64*)p));
  if constexpr (sizeof(T) == 4) return same_bits<T>(__ldcs((const uint32*)p));
  return *p;
#endif
}

/// Values of a thread whose loads are under way together; the library's kMetAtOnce.
constexpr int kMetAtOnce = 4;

extern "C" __global__ void __launch_bounds__(256)
    combine(Kept* out, const Element* values, const Index* indices, Grid g) {
  const int64 block = kMetAtOnce * int64(blockDim.x);
  for (int64 first = blockIdx.x * block + threadIdx.x; first < g.count; first += gridDim.x * block) {
    Index index[kMetAtOnce];
    Element value[kMetAtOnce];
    int64 place[kMetAtOnce];
#pragma unroll
    for (int j = 0; j < kMetAtOnce; ++j) {
      const int64 i = first + j * blockDim.x;
      const Spot s = spot_of(g, i < g.count ? i : g.count - 1);
      index[j] = indices[s.index];
      value[j] = values[s.value];
      place[j] = s.place;
    }
#pragma unroll
    for (int j = 0; j < kMetAtOnce; ++j) {
      int64 position;
      if (first + j * blockDim.x >= g.count || !resolve(index[j], g.extent, position)) continue;
      Kept kept;
      assign(kept, value[j]);
      meet<kHow>(out + place[j] + position * g.place_step, kept);
    }
  }
}

/// Whole rows of `width` elements, all of fewer than 2^31, by adjacent threads: a row's elements, which are
/// in few sectors, meet the output there together. `inverse`: index_div's number for the width.
extern "C" __global__ void __launch_bounds__(256)
    combine_whole_rows(Kept* out, const Element* values, const Index* indices, int64 rows, int width,
                       int inverse, int count) {
  const int block = kMetAtOnce * blockDim.x;
  for (unsigned int first = blockIdx.x * block + threadIdx.x; first < count; first += gridDim.x * block) {
    Index index[kMetAtOnce];
    Element value[kMetAtOnce];
    int at[kMetAtOnce];
#pragma unroll
    for (int j = 0; j < kMetAtOnce; ++j) {
      const unsigned int i = first + j * blockDim.x;
      const int mine = int(i < count ? i : count - 1), row = index_div(mine, width, inverse);
      at[j] = mine - row * width;
      index[j] = read_once(indices + row);
      value[j] = read_once(values + mine);
    }
#pragma unroll
    for (int j = 0; j < kMetAtOnce; ++j) {
      int64 position;
      if (first + j * blockDim.x >= count || !resolve(index[j], rows, position)) continue;
      Kept kept;
      assign(kept, value[j]);
      meet<kHow>(out + position * width + at[j], kept);
    }
  }
}

/// meet_at(place, value) of the values whose indices are in a range of positions, so that the elements which
/// they can reach stay in the second cache; load_at(i) is the value at i.
template <class Load, class Meet>
__device__ __forceinline__ void each_in_range(const Index* indices, const Grid& g, int64 low, int64 high,
                                              const Load& load_at, const Meet& meet_at) {
  const int64 block = kMetAtOnce * int64(blockDim.x);
  for (int64 first = blockIdx.x * block + threadIdx.x; first < g.count; first += gridDim.x * block) {
    Index index[kMetAtOnce];
    decltype(load_at(int64())) value[kMetAtOnce];
    int64 place[kMetAtOnce], at[kMetAtOnce];
    bool meets[kMetAtOnce];
#pragma unroll
    for (int j = 0; j < kMetAtOnce; ++j) {
      const int64 i = first + j * blockDim.x;
      const Spot s = spot_of(g, i < g.count ? i : g.count - 1);
      index[j] = read_once(indices + s.index);
      at[j] = s.value;
      place[j] = s.place;
    }
#pragma unroll
    for (int j = 0; j < kMetAtOnce; ++j) {
      int64 position = 0;
      meets[j] = first + j * blockDim.x < g.count && resolve(index[j], g.extent, position) &&
                 position >= low && position < high;
      place[j] += position * g.place_step;
      if (meets[j]) value[j] = load_at(at[j]);
    }
#pragma unroll
    for (int j = 0; j < kMetAtOnce; ++j)
      if (meets[j]) meet_at(place[j], value[j]);
  }
}

/// As combine(), for indices in a range of positions.
extern "C" __global__ void __launch_bounds__(256)
    combine_range(Kept* out, const Element* values, const Index* indices, Grid g, int64 low, int64 high) {
  each_in_range(
      indices, g, low, high, [&](int64 at) { return read_once(values + at); },
      [&](int64 place, Element value) {
        Kept kept;
        assign(kept, value);
        meet<kHow>(out + place, kept);
      });
}
