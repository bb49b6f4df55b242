// Several adjacent elements at once.
#pragma once

template <class T, int N>
struct vec {
  T at[N];
};

template <int Bytes>
struct word;
template <>
struct word<2> {
  typedef unsigned short type;
};
template <>
struct word<4> {
  typedef unsigned int type;
};
template <>
struct word<8> {
  typedef uint2 type;
};
template <>
struct word<16> {
  typedef uint4 type;
};

#if __CUDA_ARCH__ == 900
// the compiler's own
extern "C" __device__ void* __nv_associate_access_property_impl(const void*, unsigned long long);
#endif

/// The same pointer, for a pass over more than the second cache holds (`far`): what is read leaves the cache
/// last. What is written then leaves it soon and in order, and memory changes less often between reads and
/// writes. Known to help on Hopper.
template <class T>
__device__ __forceinline__ const T* leaves_last(const T* p, bool far) {
#if __CUDA_ARCH__ == 900
  unsigned long long last, normal;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(last));
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(normal));
  return static_cast<const T*>(__nv_associate_access_property_impl(p, far ? last : normal));
#else
  return p;
#endif
}

/// Accesses of 16 bytes, or of the whole where that is less. Pre: p is a multiple of as many bytes.
template <int N, class T>
__device__ __forceinline__ vec<T, N> load(const T* __restrict__ p) {
  constexpr int kBytes = N * sizeof(T), kWord = kBytes < 16 ? kBytes : 16;
  typedef typename word<kWord>::type W;
  union {
    vec<T, N> elements;
    W words[kBytes / kWord];
  } u;
#pragma unroll
  for (int i = 0; i < kBytes / kWord; ++i) u.words[i] = reinterpret_cast<const W*>(p)[i];
  return u.elements;
}

template <int N, class T>
__device__ __forceinline__ void store(T* p, const vec<T, N>& x) {
  constexpr int kBytes = N * sizeof(T), kWord = kBytes < 16 ? kBytes : 16;
  typedef typename word<kWord>::type W;
  union {
    vec<T, N> elements;
    W words[kBytes / kWord];
  } u;
  u.elements = x;
#pragma unroll
  for (int i = 0; i < kBytes / kWord; ++i) reinterpret_cast<W*>(p)[i] = u.words[i];
}

/// The same where only the first `left` of them are there, N or more: all.
template <int N, class T>
__device__ __forceinline__ vec<T, N> load(const T* __restrict__ p, int left) {
  if (left >= N) return load<N>(p);
  vec<T, N> x = {};
#pragma unroll
  for (int v = 0; v < N; ++v)
    if (v < left) x.at[v] = p[v];
  return x;
}

template <int N, class T>
__device__ __forceinline__ void store(T* p, const vec<T, N>& x, int left) {
  if (left >= N) return store(p, x);
#pragma unroll
  for (int v = 0; v < N; ++v)
    if (v < left) p[v] = x.at[v];
}

/// The same where those from `from` on, up to `left`, are there.
template <int N, class T>
__device__ __forceinline__ void store(T* p, const vec<T, N>& x, int from, int left) {
  if (from <= 0 && left >= N) return store(p, x);
#pragma unroll
  for (int v = 0; v < N; ++v)
    if (v >= from && v < left) p[v] = x.at[v];
}

/// Copies N elements to shared memory beside the threads (from compute capability 8.0 on): no register waits
/// for them, so that all of a thread's copies are under way together. They are there once the thread has
/// called copies_landed() and the block has met. Pre: both addresses are multiples of as many bytes.
template <int N, class T>
__device__ __forceinline__ void copy_beside(T* to, const T* from) {
#if __CUDA_ARCH__ >= 800 && !defined(KILN_FAKE_DEVICE)
  constexpr int kBytes = N * sizeof(T), kWord = kBytes < 16 ? kBytes : 16;
  unsigned int at;
  asm("{ .reg .u64 wide; cvta.to.shared.u64 wide, %1; cvt.u32.u64 %0, wide; }" : "=r"(at) : "l"(to));
#pragma unroll
  for (int i = 0; i < kBytes / kWord; ++i) {
    const char* const word = reinterpret_cast<const char*>(from) + i * kWord;
    if (kWord == 16)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at + i * kWord), "l"(word) : "memory");
    else
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at + i * kWord), "l"(word), "n"(kWord)
                   : "memory");
  }
#else
  store(to, load<N>(from));
#endif
}
template <int N, class T>
__device__ __forceinline__ void copy_beside(T* to, const T* from, int left) {
  if (left >= N) return copy_beside<N>(to, from);
  store(to, load<N>(from, left), left);
}
__device__ __forceinline__ void copies_landed() {
#if __CUDA_ARCH__ >= 800 && !defined(KILN_FAKE_DEVICE)
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/// N elements that begin anywhere, by the accesses of load() that they lie in: each of these holds one of
/// them, so that none goes beyond the memory that the elements are in. (Allocations begin at multiples of 16
/// bytes.)
template <int N, class T>
__device__ __forceinline__ vec<T, N> load_any(const T* __restrict__ p) {
  constexpr int kBytes = N * sizeof(T), kChunk = kBytes < 16 ? kBytes : 16, kChunks = kBytes / kChunk;
  constexpr int kWords = kBytes / 4, kOfChunk = kChunk / 4;
  static_assert(kWords > 0, "fewer bytes than a word");
  const unsigned int off = (unsigned int)(unsigned long long)p & (kChunk - 1);
  typedef typename word<kChunk>::type W;
  union {
    W chunks[kChunks + 1];
    unsigned int words[(kChunks + 1) * kOfChunk];
  } from;
  const W* const first = reinterpret_cast<const W*>(reinterpret_cast<const char*>(p) - off);
#pragma unroll
  for (int i = 0; i < kChunks; ++i) from.chunks[i] = first[i];
  from.chunks[kChunks] = first[off ? kChunks : kChunks - 1];
#pragma unroll
  for (int step = kOfChunk / 2; step > 0; step /= 2)
#pragma unroll
    for (int i = 0; i + step < (kChunks + 1) * kOfChunk; ++i)
      from.words[i] = off & (4 * step) ? from.words[i + step] : from.words[i];
  union {
    vec<T, N> elements;
    unsigned int words[kWords];
  } u;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    const unsigned long long two = (unsigned long long)from.words[i + 1] << 32 | from.words[i];
    u.words[i] = sizeof(T) < 4 ? (unsigned int)(two >> (off % 4 * 8)) : from.words[i];
  }
  return u.elements;
}

/// M elements that begin anywhere, in the same way.
template <int M, class T>
__device__ __forceinline__ vec<T, M> load_span(const T* __restrict__ p) {
  constexpr int kBytes = M * sizeof(T), kChunks = (kBytes + 30) / 16, kWords = (kBytes + 3) / 4;
  const unsigned int off = (unsigned int)(unsigned long long)p & 15u;
  union {
    uint4 chunks[kChunks];
    unsigned int words[4 * kChunks];
  } from;
  const uint4* const first = reinterpret_cast<const uint4*>(reinterpret_cast<const char*>(p) - off);
  const int last = int(off + kBytes - 1) / 16;
#pragma unroll
  for (int i = 0; i < kChunks; ++i) from.chunks[i] = first[i < last ? i : last];
#pragma unroll
  for (int step = 2; step > 0; step /= 2)
#pragma unroll
    for (int i = 0; i < kWords + step && i + step < 4 * kChunks; ++i)
      from.words[i] = off & (4 * step) ? from.words[i + step] : from.words[i];
  union {
    vec<T, M> elements;
    unsigned int words[kWords];
  } u;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    const unsigned int next = i + 1 < 4 * kChunks ? from.words[i + 1] : 0u;
    const unsigned long long two = (unsigned long long)next << 32 | from.words[i];
    u.words[i] = sizeof(T) < 4 ? (unsigned int)(two >> (off % 4 * 8)) : from.words[i];
  }
  return u.elements;
}

/// The elements from `Lo` to N - 1 + `Hi` around N at p, which is a multiple of their size: by the accesses
/// of load() that they lie in.
template <int N, int Lo, int Hi, class T>
__device__ __forceinline__ vec<T, N + Hi - Lo> load_around(const T* __restrict__ p) {
  constexpr int kFirst = (Lo + 64 * N) / N - 64, kLast = (N - 1 + Hi + 64 * N) / N - 64;
  vec<T, N> from[kLast - kFirst + 1];
#pragma unroll
  for (int i = kFirst; i <= kLast; ++i) from[i - kFirst] = load<N>(p + i * N);
  vec<T, N + Hi - Lo> all;
#pragma unroll
  for (int i = 0; i < N + Hi - Lo; ++i)
    all.at[i] = from[(i + Lo - kFirst * N) / N].at[(i + Lo - kFirst * N) % N];
  return all;
}
