// Reductions over the threads of a team: a power of two of at most 32 adjacent ones, or a whole block. Every
// thread of the team gets the result; the order of combination is fixed by the team's size alone.
#pragma once

struct Sum {  // integers wrap
  template <class T>
  static __device__ __forceinline__ T of(T a, T b) {
    return T(a + b);
  }
  static __device__ __forceinline__ int of(int a, int b) { return int((unsigned int)a + (unsigned int)b); }
  static __device__ __forceinline__ long long of(long long a, long long b) {
    return (long long)((unsigned long long)a + (unsigned long long)b);
  }
};
struct Prod {
  template <class T>
  static __device__ __forceinline__ T of(T a, T b) {
    return T(a * b);
  }
  static __device__ __forceinline__ int of(int a, int b) { return int((unsigned int)a * (unsigned int)b); }
  static __device__ __forceinline__ long long of(long long a, long long b) {
    return (long long)((unsigned long long)a * (unsigned long long)b);
  }
};
struct Max {
  template <class T>
  static __device__ __forceinline__ T of(T a, T b) {
    return greatest(a, b);
  }
};
struct Min {
  template <class T>
  static __device__ __forceinline__ T of(T a, T b) {
    return least(a, b);
  }
};

/// A value and where it was found.
template <class T, class P>
struct Best {
  T value;
  P position;  // none yet: the greatest P
};

/// The best value: NaN if there is one, and of equal ones that of the smallest position. `Order::over(a, b)`:
/// a is better than b, or one of them NaN.
template <class Order>
struct Arg {
  template <class T, class P>
  static __device__ __forceinline__ Best<T, P> of(Best<T, P> a, Best<T, P> b) {
    const bool over = Order::over(a.value, b.value), under = Order::over(b.value, a.value);
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    const bool first = over != under ? over : a_nan != b_nan ? a_nan : a.position < b.position;
    return first ? a : b;
  }
  /// The same with a value whose position is greater than all that `best` is made of.
  template <class T, class P>
  static __device__ __forceinline__ Best<T, P> then(Best<T, P> best, T value, P position) {
    const bool better = Order::over(value, best.value) && best.value == best.value;
    return {better ? value : best.value, better ? position : best.position};
  }
};
struct Greater {
  template <class T>
  static __device__ __forceinline__ bool over(T a, T b) {
    return !(a <= b);
  }
};
struct Less {
  template <class T>
  static __device__ __forceinline__ bool over(T a, T b) {
    return !(a >= b);
  }
};
typedef Arg<Greater> ArgMax;
typedef Arg<Less> ArgMin;

/// Where the best was found. Where `then` has left every value out they are all the worst there is: the first
/// of them.
__device__ __forceinline__ long long found(int position) { return position == 0x7fffffff ? 0 : position; }
__device__ __forceinline__ long long found(long long position) {
  return position == 0x7fffffffffffffffll ? 0 : position;
}

/// What a kernel's own monoid keeps of a value, in two parts.
template <class A, class B>
struct Pair {
  A first;
  B second;
};

/// Adds x to a compensated sum. What rounding takes from the sum is summed up in `lost`: exactly, where x is
/// no larger than the sum (T. J. Dekker, "A floating-point technique for extending the available precision",
/// 1971).
__device__ __forceinline__ void add_compensated(float& sum, float& lost, float x) {
  const float total = sum + x;
  lost += x - (total - sum);
  sum = total;
}
/// The same for a product.
__device__ __forceinline__ void add_compensated(float& sum, float& lost, float x, float y) {
  const float total = __fmaf_rn(x, y, sum);
  lost += __fmaf_rn(x, y, sum - total);
  sum = total;
}
/// A compensated sum with what it has lost; infinities have lost nothing.
__device__ __forceinline__ float compensated(float sum, float lost) {
  const float whole = sum + lost;
  return whole - whole == 0 ? whole : sum;
}

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
template <class T, class P>
__device__ __forceinline__ Best<T, P> exchange(unsigned int members, Best<T, P> x, int mask) {
  return {exchange(members, x.value, mask), exchange(members, x.position, mask)};
}

template <class A, class B>
__device__ __forceinline__ Pair<A, B> exchange(unsigned int members, Pair<A, B> x, int mask) {
  return {exchange(members, x.first, mask), exchange(members, x.second, mask)};
}

// A kernel's own monoid may be the greatest of values and the sum of their exponentials relative to it: its
// structure then says `Relative`, and `weight(d)` is e^d. Several values, or the threads of a team, find
// their greatest first; so each of them takes one exponential, and no choice of which of two is relative to
// which.
//
// Invariant: an infinite greatest value is nobody's base. Minus infinity is nothing but such values, whose
// sum is 0; beside infinity the sum is some number or infinity.
template <class Op, class = void>
struct is_relative {
  static constexpr bool value = false;
};
template <class Op>
struct is_relative<Op, typename Op::Relative> {
  static constexpr bool value = true;
};
template <class T>
__device__ __forceinline__ T base_of(T greatest) {
  return greatest - greatest == 0 ? greatest : T(0);
}
/// What a sum relative to `first` is worth in one relative to `most`, which is none less. Of equal ones it is
/// 1, of infinities too, whose sums would come to nothing step by step.
template <class Op, class T>
__device__ __forceinline__ T weight_in(T first, T most) {
  return first == most ? T(1) : Op::weight(first - base_of(most));
}
/// The parts of N values.
template <class Op, int N, class T>
__device__ __forceinline__ Pair<T, T> with(const T (&x)[N]) {
  T most = x[0];
#pragma unroll
  for (int i = 1; i < N; ++i) most = greatest(most, x[i]);
  const T base = base_of(most);
  T sum = Op::weight(x[0] - base);
#pragma unroll
  for (int i = 1; i < N; ++i) sum += Op::weight(x[i] - base);
  return {most, sum};
}
/// The parts with N more values.
template <class Op, int N, class T>
__device__ __forceinline__ Pair<T, T> with(Pair<T, T> parts, const T (&x)[N]) {
  T most = x[0];
#pragma unroll
  for (int i = 1; i < N; ++i) most = greatest(most, x[i]);
  most = greatest(most, parts.first);
  const T base = base_of(most);
  T sum = Op::weight(x[0] - base);
#pragma unroll
  for (int i = 1; i < N; ++i) sum += Op::weight(x[i] - base);
  return {most, parts.second * Op::weight(parts.first - base) + sum};
}

/// Team of `Team` <= 32 adjacent threads; `members` are those of the warp that call.
template <class Op, int Team, class T>
__device__ __forceinline__ T reduce_lanes(T x, unsigned int members) {
  if constexpr (is_relative<Op>::value) {
    const auto own = x.first;
#pragma unroll
    for (int mask = Team / 2; mask > 0; mask /= 2)
      x.first = greatest(x.first, exchange(members, x.first, mask));
    x.second *= weight_in<Op>(own, x.first);
#pragma unroll
    for (int mask = Team / 2; mask > 0; mask /= 2) x.second += exchange(members, x.second, mask);
  } else {
#pragma unroll
    for (int mask = Team / 2; mask > 0; mask /= 2) x = Op::of(x, exchange(members, x, mask));
  }
  return x;
}

/// The same of N values each, a power of two up to `Team`: every Team / N adjacent threads get the result of
/// one. In each step a thread keeps one half of its values and gives the other away.
template <class Op, int Team, int N, class T>
__device__ __forceinline__ T reduce_each(T (&x)[N], unsigned int members) {
#pragma unroll
  for (int n = N / 2; n > 0; n /= 2) {
    const int mask = Team / N * n;
    const bool upper = (threadIdx.x & mask) != 0;
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const T kept = upper ? x[n + i] : x[i], given = upper ? x[i] : x[n + i];
      x[i] = Op::of(kept, exchange(members, given, mask));
    }
  }
  return reduce_lanes<Op, Team / N>(x[0], members);
}

/// Team of all `Threads` of a block, a multiple of 32. Every thread calls. A kernel's calls share `turn`, 0
/// before the first: they use two halves of the memory by turns, so that one barrier is enough. Who writes a
/// half again has passed the barrier of the call between, and so has everybody who read it.
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

/// What `Team` threads of a warp have of pairs, in each of them; they are `Step` apart.
template <class Op, int Step, int Team, class T>
__device__ __forceinline__ T reduce_relative(T x) {
  const auto own = x.first;
#pragma unroll
  for (int mask = Step; mask < Step * Team; mask *= 2)
    x.first = greatest(x.first, exchange(0xffffffffu, x.first, mask));
  x.second *= weight_in<Op>(own, x.first);
#pragma unroll
  for (int mask = Step; mask < Step * Team; mask *= 2) x.second += exchange(0xffffffffu, x.second, mask);
  return x;
}

/// Over the `Rows` parts of a block, `Width` threads each (a power of two): those of equal place. Every
/// thread calls and gets the results. The parts that share a warp come together by shuffles, the others
/// through shared memory.
template <class Op, int Width, int Rows, int N, class T>
__device__ __forceinline__ void reduce_rows(T (&x)[N]) {
  constexpr int kUnit = Width < 32 ? 32 : Width, kUnits = Width * Rows / kUnit;
  __shared__ T parts[N][kUnits][Width];
  const int place = threadIdx.x % Width;
#pragma unroll
  for (int v = 0; v < N; ++v) {
    if constexpr (is_relative<Op>::value && Width < 32) {
      x[v] = reduce_relative<Op, Width, 32 / Width>(x[v]);
    } else {
#pragma unroll
      for (int mask = Width; mask < 32; mask *= 2) x[v] = Op::of(x[v], exchange(0xffffffffu, x[v], mask));
    }
    if (threadIdx.x % kUnit < Width) parts[v][threadIdx.x / kUnit][place] = x[v];
  }
  __syncthreads();
#pragma unroll
  for (int v = 0; v < N; ++v) {
    x[v] = parts[v][0][place];
    if constexpr (is_relative<Op>::value) {
#pragma unroll
      for (int u = 1; u < kUnits; ++u) x[v].first = greatest(x[v].first, parts[v][u][place].first);
      x[v].second = 0;
#pragma unroll
      for (int u = 0; u < kUnits; ++u)
        x[v].second += parts[v][u][place].second * weight_in<Op>(parts[v][u][place].first, x[v].first);
    } else {
#pragma unroll
      for (int u = 1; u < kUnits; ++u) x[v] = Op::of(x[v], parts[v][u][place]);
    }
  }
  __syncthreads();  // the next call may write
}
template <class Op, int Width, int Rows, class T>
__device__ __forceinline__ void reduce_rows(T& x) {
  T one[1] = {x};
  reduce_rows<Op, Width, Rows>(one);
  x = one[0];
}
