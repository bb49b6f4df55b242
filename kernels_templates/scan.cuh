// Running values over the threads of a team and the lanes of each: thread after thread, in each lane after
// lane. The order of combination is fixed by the team's size and the lanes alone.
#pragma once

/// The value of the thread `d` lanes before; of threads that have none there, anything.
template <int Team, class T>
__device__ __forceinline__ T from_before(unsigned int members, T x, int d) {
  if constexpr (sizeof(T) < 4)
    return T(__shfl_up_sync(members, int(x), d, Team));
  else
    return __shfl_up_sync(members, x, d, Team);
}
template <int Team, class T>
__device__ __forceinline__ T from_thread(unsigned int members, T x, int thread) {
  if constexpr (sizeof(T) < 4)
    return T(__shfl_sync(members, int(x), thread, Team));
  else
    return __shfl_sync(members, x, thread, Team);
}
template <int Team, class A, class B>
__device__ __forceinline__ Pair<A, B> from_before(unsigned int members, Pair<A, B> x, int d) {
  return {from_before<Team>(members, x.first, d), from_before<Team>(members, x.second, d)};
}
template <int Team, class A, class B>
__device__ __forceinline__ Pair<A, B> from_thread(unsigned int members, Pair<A, B> x, int thread) {
  return {from_thread<Team>(members, x.first, thread), from_thread<Team>(members, x.second, thread)};
}

/// Prefixes of one value a thread; returns what comes before it in the team (`none` for the first) and puts
/// the value of the whole team into `all`.
template <class Op, int Team, class T>
__device__ __forceinline__ T scan_lanes(T x, T none, T& all, unsigned int members) {
  const int rank = threadIdx.x % Team;
#pragma unroll
  for (int d = 1; d < Team; d *= 2) {
    const T y = from_before<Team>(members, x, d);
    if (rank >= d) x = Op::of(x, y);
  }
  all = from_thread<Team>(members, x, Team - 1);
  const T before = from_before<Team>(members, x, 1);
  return rank == 0 ? none : before;
}

template <class Op, int Threads, class T>
__device__ __forceinline__ T scan_block(T x, T none, T& all) {
  constexpr int kWarps = Threads / 32;
  __shared__ T parts[kWarps];
  T warp;
  const T before = scan_lanes<Op, 32>(x, none, warp, 0xffffffffu);
  if (threadIdx.x % 32 == 31) parts[threadIdx.x / 32] = warp;
  __syncthreads();
  T earlier = none;
  all = none;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    if (w == threadIdx.x / 32) earlier = all;
    all = Op::of(parts[w], all);
  }
  __syncthreads();  // the next call may write
  return Op::of(before, earlier);
}

/// One step of a scan: `x` becomes the running values of this thread's lanes, `first` what comes before them;
/// `carry` has what comes before the step and then what comes before the next one. Every thread of the team
/// calls.
template <class Op, int Lanes, class T>
__device__ __forceinline__ T own_total(T (&x)[Lanes]) {
#pragma unroll
  for (int v = 1; v < Lanes; ++v) x[v] = Op::of(x[v], x[v - 1]);
  return x[Lanes - 1];
}
template <class Op, int Lanes, class T>
__device__ __forceinline__ void add_before(T (&x)[Lanes], T before, T all, T& carry, T& first) {
  first = Op::of(before, carry);
#pragma unroll
  for (int v = 0; v < Lanes; ++v) x[v] = Op::of(x[v], first);
  carry = Op::of(all, carry);
}

// Sums of exponentials relative to the greatest value (`Relative` in reduce.cuh). While a team's values are
// none greater than what comes before its step, each adds its exponential, relative to the greatest of that,
// to one sum: a scan of sums. Else each thread's values are relative to their own greatest first; and while
// these are none greater than what comes before the thread, they are added to one sum again: no choice of
// which of two is relative to which, and one exponential a value. Any other thread combines its values one
// after the other.
template <int Lanes, class T>
__device__ __forceinline__ T greatest_of(const Pair<T, T> (&x)[Lanes]) {
  T most = x[0].first;
#pragma unroll
  for (int v = 1; v < Lanes; ++v) most = greatest(most, x[v].first);
  return most;
}
/// Running sums of exponentials relative to `base`.
template <class Op, int Lanes, class T>
__device__ __forceinline__ void weigh(const Pair<T, T> (&x)[Lanes], T base, T (&sums)[Lanes]) {
#pragma unroll
  for (int v = 0; v < Lanes; ++v) {
    sums[v] = Op::weight(x[v].first - base);
    if (v > 0) sums[v] += sums[v - 1];
  }
}
template <class T>
__device__ __forceinline__ bool is_below(T most, T greatest) {
  return most <= greatest && greatest - greatest == 0;
}
template <class Op, int Lanes, class T>
__device__ __forceinline__ void add_before(Pair<T, T> (&x)[Lanes], const T (&sums)[Lanes], T most,
                                           Pair<T, T> first) {
  if (is_below(most, first.first)) {
    const T weight = Op::weight(most - first.first);
#pragma unroll
    for (int v = 0; v < Lanes; ++v) x[v] = {first.first, sums[v] * weight + first.second};
  } else {
    x[0] = Op::of(x[0], first);
#pragma unroll
    for (int v = 1; v < Lanes; ++v) x[v] = Op::of(x[v], x[v - 1]);
  }
}
template <class Op, int Lanes, class T, class OfTeam>
__device__ __forceinline__ void scan_relative(Pair<T, T> (&x)[Lanes], Pair<T, T> none, Pair<T, T>& carry,
                                              Pair<T, T>& first, OfTeam of_team) {
  T sums[Lanes];
  const T most = greatest_of(x);
  if (of_team.all_are(is_below(most, carry.first))) {
    weigh<Op>(x, carry.first, sums);
    T all;
    first = {carry.first, of_team.template before<Sum>(sums[Lanes - 1], T(0), all) + carry.second};
#pragma unroll
    for (int v = 0; v < Lanes; ++v) x[v] = {carry.first, sums[v] + first.second};
    carry.second += all;
  } else {
    weigh<Op>(x, base_of(most), sums);
    Pair<T, T> all;
    first = Op::of(of_team.template before<Op>(Pair<T, T>{most, sums[Lanes - 1]}, none, all), carry);
    add_before<Op>(x, sums, most, first);
    carry = Op::of(all, carry);
  }
}

/// What a thread does with the others of its team: finds what is before it, and what all agree in.
struct AloneInTeam {
  template <class Op, class T>
  __device__ __forceinline__ T before(T own, T none, T& all) const {
    all = own;
    return none;
  }
  __device__ __forceinline__ bool all_are(bool x) const { return x; }
};
template <int Team>
struct InWarp {
  unsigned int members;
  template <class Op, class T>
  __device__ __forceinline__ T before(T own, T none, T& all) const {
    return scan_lanes<Op, Team>(own, none, all, members);
  }
  __device__ __forceinline__ bool all_are(bool x) const { return __all_sync(members, x); }
};
template <int Threads>
struct InBlock {
  template <class Op, class T>
  __device__ __forceinline__ T before(T own, T none, T& all) const {
    return scan_block<Op, Threads>(own, none, all);
  }
  __device__ __forceinline__ bool all_are(bool x) const { return !__syncthreads_or(!x); }
};

template <class Op, int Lanes, class T, class OfTeam>
__device__ __forceinline__ void scan_step(T (&x)[Lanes], T none, T& carry, T& first, OfTeam of_team) {
  if constexpr (is_relative<Op>::value) {
    scan_relative<Op>(x, none, carry, first, of_team);
  } else {
    T all;
    const T before = of_team.template before<Op>(own_total<Op>(x), none, all);
    add_before<Op>(x, before, all, carry, first);
  }
}
template <class Op, int Lanes, class T>
__device__ __forceinline__ void scan_thread(T (&x)[Lanes], T none, T& carry, T& first) {
  scan_step<Op>(x, none, carry, first, AloneInTeam());
}
template <class Op, int Team, int Lanes, class T>
__device__ __forceinline__ void scan_team(T (&x)[Lanes], T none, T& carry, T& first, unsigned int members) {
  scan_step<Op>(x, none, carry, first, InWarp<Team>{members});
}
template <class Op, int Threads, int Lanes, class T>
__device__ __forceinline__ void scan_team(T (&x)[Lanes], T none, T& carry, T& first) {
  scan_step<Op>(x, none, carry, first, InBlock<Threads>());
}
