// Reductions over the threads of a team: a power of two of at most 32 adjacent ones, or a whole block. Every thread of
// the team gets the result; the order of combination is fixed by the team's size alone.
#pragma once

struct Sum {  // integers wrap
  template <class T> static __device__ __forceinline__ T of(T a, T b) { return T(a + b); }
  static __device__ __forceinline__ int of(int a, int b) { return int((unsigned int)a + (unsigned int)b); }
  static __device__ __forceinline__ long long of(long long a, long long b) {
    return (long long)((unsigned long long)a + (unsigned long long)b);
  }
};
struct Prod {
  template <class T> static __device__ __forceinline__ T of(T a, T b) { return T(a * b); }
  static __device__ __forceinline__ int of(int a, int b) { return int((unsigned int)a * (unsigned int)b); }
  static __device__ __forceinline__ long long of(long long a, long long b) {
    return (long long)((unsigned long long)a * (unsigned long long)b);
  }
};
struct Max {
  template <class T> static __device__ __forceinline__ T of(T a, T b) { return greatest(a, b); }
};
struct Min {
  template <class T> static __device__ __forceinline__ T of(T a, T b) { return least(a, b); }
};

/// A value and where it was found: NaN is best of all, then the better value, then the smaller position.
template <class T>
struct Best {
  T value;
  long long position;
};
struct ArgMax {
  template <class T> static __device__ __forceinline__ Best<T> of(Best<T> a, Best<T> b) {
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    const bool tie = a.value == b.value || (a_nan && b_nan);
    const bool first = tie ? a.position < b.position : a_nan || (!b_nan && a.value > b.value);
    return first ? a : b;
  }
};
struct ArgMin {
  template <class T> static __device__ __forceinline__ Best<T> of(Best<T> a, Best<T> b) {
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    const bool tie = a.value == b.value || (a_nan && b_nan);
    const bool first = tie ? a.position < b.position : a_nan || (!b_nan && a.value < b.value);
    return first ? a : b;
  }
};

/// What a kernel's own monoid keeps of a value, in two parts.
template <class A, class B>
struct Pair {
  A first;
  B second;
};

/// The value of the thread whose lane differs by `mask`.
template <class T>
__device__ __forceinline__ T exchange(unsigned int members, T x, int mask) {
  return __shfl_xor_sync(members, x, mask);
}
__device__ __forceinline__ bool exchange(unsigned int members, bool x, int mask) {
  return __shfl_xor_sync(members, int(x), mask) != 0;
}
__device__ __forceinline__ signed char exchange(unsigned int members, signed char x, int mask) {
  return (signed char)__shfl_xor_sync(members, int(x), mask);
}
__device__ __forceinline__ unsigned char exchange(unsigned int members, unsigned char x, int mask) {
  return (unsigned char)__shfl_xor_sync(members, int(x), mask);
}
__device__ __forceinline__ short exchange(unsigned int members, short x, int mask) {
  return (short)__shfl_xor_sync(members, int(x), mask);
}
__device__ __forceinline__ unsigned short exchange(unsigned int members, unsigned short x, int mask) {
  return (unsigned short)__shfl_xor_sync(members, int(x), mask);
}
template <class T>
__device__ __forceinline__ Best<T> exchange(unsigned int members, Best<T> x, int mask) {
  Best<T> y;
  y.value = exchange(members, x.value, mask);
  y.position = exchange(members, x.position, mask);
  return y;
}

template <class A, class B>
__device__ __forceinline__ Pair<A, B> exchange(unsigned int members, Pair<A, B> x, int mask) {
  return {exchange(members, x.first, mask), exchange(members, x.second, mask)};
}

/// Team of `Team` <= 32 adjacent threads; `members` are those of the warp that call.
template <class Op, int Team, class T>
__device__ __forceinline__ T reduce_lanes(T x, unsigned int members) {
#pragma unroll
  for (int mask = Team / 2; mask > 0; mask /= 2) x = Op::of(x, exchange(members, x, mask));
  return x;
}

/// Team of all `Threads` of a block, a multiple of 32. Every thread calls. A kernel's calls share `turn`, 0 before the first:
/// they use two halves of the memory by turns, so that one barrier is enough. Who writes a half again has passed the
/// barrier of the call between, and so has everybody who read it.
template <class Op, int Threads, class T>
__device__ __forceinline__ T reduce_block(T x, int& turn) {
  constexpr int kWarps = Threads / 32;
  __shared__ T parts[2][kWarps];
  x = reduce_lanes<Op, 32>(x, 0xffffffffu);
  if (threadIdx.x % 32 == 0) parts[turn][threadIdx.x / 32] = x;
  __syncthreads();
  x = reduce_lanes<Op, kWarps>(parts[turn][threadIdx.x % kWarps], 0xffffffffu);
  turn ^= 1;
  return x;
}

/// Over the `Rows` parts of a block, `Width` threads each: those of equal place. Every thread calls.
template <class Op, int Width, int Rows, int N, class T>
__device__ __forceinline__ void reduce_rows(T (&x)[N]) {
  __shared__ T parts[N][Rows][Width];
  const int row = threadIdx.x / Width, place = threadIdx.x % Width;
#pragma unroll
  for (int v = 0; v < N; ++v) parts[v][row][place] = x[v];
  __syncthreads();
#pragma unroll
  for (int v = 0; v < N; ++v) {
    x[v] = parts[v][0][place];
#pragma unroll 1
    for (int r = 1; r < Rows; ++r) x[v] = Op::of(x[v], parts[v][r][place]);
  }
  __syncthreads();  // the next call may write
}
template <class Op, int Width, int Rows, class T>
__device__ __forceinline__ void reduce_rows(T& x) {
  T one[1] = {x};
  reduce_rows<Op, Width, Rows>(one);
  x = one[0];
}
