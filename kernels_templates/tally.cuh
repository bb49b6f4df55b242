// Indices that a kernel counts instead of storing them: kernel::Tally. A block has counters of all places in
// shared memory; its threads add up what they counted when all of them have.
//
// Counters of 16 bits: whoever finds the highest bit set takes it away, and adds as many to the result at
// once. So a counter never gets beyond its bits, however often one place comes.
#pragma once

template <int Bytes>
struct count_word {
  typedef unsigned int type;
};
template <>
struct count_word<8> {
  typedef unsigned long long type;
};

template <int Bytes, bool Halves, int LogCopies>
struct Tally {
  typedef typename count_word<Bytes>::type Count;
  Count* const counts;
  const Count number;
  const int places;
  unsigned int* const counters;

  static __device__ __forceinline__ unsigned int* memory() {
#ifdef KILN_FAKE_DEVICE
    __shared__ unsigned int words[1 << 15];
    return words;
#else
    extern __shared__ unsigned int words[];
    return words;
#endif
  }

  template <class T>
  __device__ __forceinline__ Tally(T* counts, const T* number, long long places)
      : counts((Count*)counts), number((Count)*number), places(int(places)), counters(memory()) {
    const int words = Halves ? (this->places + 1) / 2 : this->places << LogCopies;
    for (int i = threadIdx.x; i < words; i += blockDim.x) counters[i] = 0;
    __syncthreads();
  }

  template <class Index>
  __device__ __forceinline__ void add(Index index) const {
    constexpr bool kSigned = Index(-1) < Index(0);
    int at;
    if constexpr (sizeof(Index) > 4) {
      const long long from_front = (long long)index + (kSigned && (long long)index < 0 ? places : 0);
      if ((unsigned long long)from_front >= (unsigned long long)places) return;
      at = int(from_front);
    } else {
      at = int(index);
      if (kSigned && at < 0) at += places;
      if ((unsigned int)at >= (unsigned int)places) return;
    }
    if constexpr (Halves) {
      const int shift = (at & 1) * 16;
      unsigned int* const word = counters + (at >> 1);
      const unsigned int before = atomicAdd(word, 1u << shift) >> shift & 0xffffu;
      if (before < 0x7fffu) return;
      if (atomicAnd(word, ~(0x8000u << shift)) >> shift & 0x8000u)
        atomicAdd(counts + at, Count(number * Count(0x8000)));
    } else {
      atomicAdd(counters + (at << LogCopies | int(threadIdx.x & ((1 << LogCopies) - 1))), 1u);
    }
  }

  /// Threads begin at different copies, which are in different banks.
  __device__ __forceinline__ void end() const {
    __syncthreads();
    for (int p = threadIdx.x; p < places; p += blockDim.x) {
      unsigned int counted = 0;
      if constexpr (Halves) {
        counted = counters[p >> 1] >> (p & 1) * 16 & 0xffffu;
      } else {
#pragma unroll 1
        for (int c = 0; c < 1 << LogCopies; ++c)
          counted += counters[p << LogCopies | ((c + p) & ((1 << LogCopies) - 1))];
      }
      if (counted) atomicAdd(counts + p, Count(number * Count(counted)));
    }
  }
};
