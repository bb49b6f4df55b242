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
template <class Op, int Lanes, class T>
__device__ __forceinline__ void scan_thread(T (&x)[Lanes], T none, T& carry, T& first) {
  const T all = own_total<Op>(x);
  add_before<Op>(x, none, all, carry, first);
}
template <class Op, int Team, int Lanes, class T>
__device__ __forceinline__ void scan_team(T (&x)[Lanes], T none, T& carry, T& first, unsigned int members) {
  T all;
  const T before = scan_lanes<Op, Team>(own_total<Op>(x), none, all, members);
  add_before<Op>(x, before, all, carry, first);
}
template <class Op, int Threads, int Lanes, class T>
__device__ __forceinline__ void scan_team(T (&x)[Lanes], T none, T& carry, T& first) {
  T all;
  const T before = scan_block<Op, Threads>(own_total<Op>(x), none, all);
  add_before<Op>(x, before, all, carry, first);
}
