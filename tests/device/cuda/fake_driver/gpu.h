// The GPU that the host is taken for, as kernels see it. A block's threads are contexts that take turns; they
// wait for each other in barriers and exchanges. What is no template is compiled once (gpu.cpp), with the
// library that each kernel is linked against; a process has one such GPU, and the fake driver runs one kernel
// at a time.
#pragma once

#include "device/cuda/fake_driver/intrinsics.h"

namespace fake_gpu {
#pragma GCC visibility push(default)  // kernels hide their own names from each other

struct Dim {
  unsigned x, y, z;
};
struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

extern Dim threadIdx, blockIdx, blockDim, gridDim;
extern unsigned block_number;  // of all blocks that ran in this process

unsigned long long nanoseconds();

/// A block finds nothing in its shared memory that means something.
template <class T>
void begins_unset(T& x, unsigned& seen) {
  if (seen == block_number) return;
  seen = block_number;
  __builtin_memset((void*)&x, 0xff, sizeof x);
}

/// Lets other threads run.
void turn();
void __syncthreads();
int __syncthreads_or(int x);

/// Waits until all members of a warp, told by its first thread, that still run have come here as often as
/// this one.
void meet(unsigned warp, unsigned members);
inline void __syncwarp() { meet(threadIdx.x / 32 * 32, ~0u); }

extern unsigned long long offered[1024];  // by each thread, in an exchange
unsigned threads();                       // of the block

template <class T>
T offered_by(unsigned thread) {
  T x;
  __builtin_memcpy(&x, &offered[thread < threads() ? thread : threadIdx.x], sizeof x);
  return x;
}

/// What `of` makes of the members' values, while all of them hold still.
template <class T, class Of>
auto exchange_of(unsigned members, T x, Of of) {
  const unsigned me = threadIdx.x, warp = me / 32 * 32;
  __builtin_memcpy(&offered[me], &x, sizeof x);
  meet(warp, members);
  const auto y = of(warp, me % 32);
  meet(warp, members);
  return y;
}
template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __shfl_xor_sync(unsigned members, T x, int mask) {
  return exchange_of(members, x,
                     [&](unsigned warp, unsigned lane) { return offered_by<T>(warp + (lane ^ mask)); });
}
template <class T>
T __shfl_up_sync(unsigned members, T x, unsigned d, int width = 32) {
  return exchange_of(members, x, [&](unsigned warp, unsigned lane) {
    return offered_by<T>(warp + (lane % width < d ? lane : lane - d));
  });
}
template <class T>
T __shfl_sync(unsigned members, T x, int from, int width = 32) {
  return exchange_of(members, x, [&](unsigned warp, unsigned lane) {
    return offered_by<T>(warp + lane / width * width + from % width);
  });
}
unsigned __ballot_sync(unsigned members, bool x);
inline bool __any_sync(unsigned members, bool x) { return __ballot_sync(members, x) != 0; }
inline bool __all_sync(unsigned members, bool x) { return __ballot_sync(members, !x) == 0; }

/// A kernel with its arguments.
struct Bound {
  void (*call)(Bound*);
};
void* memory_of_bound(unsigned long long bytes);

template <unsigned... I>
struct Positions {};
/// Arguments may lie anywhere where the host has them; those with constant members have no empty state.
template <unsigned I, class A>
struct Argument {
  alignas(A) unsigned char bytes[sizeof(A)];
};
template <class At, class... A>
struct BoundTo;
template <unsigned... I, class... A>
struct BoundTo<Positions<I...>, A...> : Bound, Argument<I, A>... {
  void (*kernel)(A...);

  BoundTo(void (*f)(A...), void** arguments) : Bound{run}, kernel(f) {
    (__builtin_memcpy(Argument<I, A>::bytes, arguments[I], sizeof(A)), ...);
  }
  static void* operator new(size_t, void* at) { return at; }
  static void run(Bound* bound) {
    auto* const all = static_cast<BoundTo*>(bound);
    all->kernel(reinterpret_cast<const A&>(all->Argument<I, A>::bytes)...);
  }
};
template <class... A>
Bound* bind_kernel(void (*f)(A...), void** arguments) {
  using Made = BoundTo<Positions<__integer_pack(sizeof...(A))...>, A...>;
  return new (memory_of_bound(sizeof(Made))) Made(f, arguments);
}

#pragma GCC visibility pop
}  // namespace fake_gpu

extern "C" {
__attribute__((visibility("default"))) void kiln_fake_run(void* bound, unsigned grid, unsigned block);
__attribute__((visibility("default"))) void kiln_fake_free(void* bound);
}
