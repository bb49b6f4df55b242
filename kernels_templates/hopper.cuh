// Instructions of Hopper alone (sm_90a): barriers in shared memory that count bytes, copies of tiles by the
// copy engine, products by whole warpgroups, registers moved between warpgroups. Each function is one
// instruction, or the least group that makes sense; ptx.cuh says why they stand apart. Must not decide
// anything.
#pragma once

/// A CUtensorMap's bytes.
struct alignas(64) TensorMap {
  uint64 words[16];
};

#ifndef KILN_FAKE_DEVICE

// ---- barriers in shared memory ---------------------------------------------------------------------------

/// Pre: one thread calls it, before all others know of the barrier (fence_barriers, then a barrier of the
/// block or cluster).
__device__ __forceinline__ void barrier_init(uint32 barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void fence_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/// Arrives, and lets the phase end only when `bytes` have been copied too.
__device__ __forceinline__ void barrier_expect(uint32 barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
/// Arrives at the same barrier of block `rank` of the cluster.
__device__ __forceinline__ void barrier_arrive(uint32 barrier, int rank) {
  asm volatile(
      "{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; "
      "mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
#ifdef KILN_TRAP_LATE
__device__ __forceinline__ uint64 nanoseconds() {
  uint64 now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}
#endif
/// Until the phase of this parity has ended. KILN_TRAP_LATE: a wait of a second, a mistake, ends the kernel.
__device__ __forceinline__ void barrier_wait(uint32 barrier, uint32 parity) {
#ifdef KILN_TRAP_LATE
  const uint64 begin = nanoseconds();
#endif
  for (;;) {
    uint32 ended;
    asm volatile(
        "{ .reg .pred ended; mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2; selp.u32 %0, 1, 0, "
        "ended; }"
        : "=r"(ended)
        : "r"(barrier), "r"(parity)
        : "memory");
    if (ended) return;
#ifdef KILN_TRAP_LATE
    if (nanoseconds() - begin > 1000000000ull) asm volatile("trap;");
#endif
  }
}

// ---- clusters --------------------------------------------------------------------------------------------

__device__ __forceinline__ int cluster_rank() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
/// All threads of all blocks of the cluster meet.
__device__ __forceinline__ void cluster_meet() {
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// ---- the copy engine -------------------------------------------------------------------------------------

__device__ __forceinline__ void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
/// Copies the box at coordinates c to shared memory; its bytes count for `barrier`. Blocks: 1 for this block
/// alone, else to the same place in each block of the cluster that `mask` names.
#define KILN_COPY_BOX(Rank, List, ...)                                                                       \
  __device__ __forceinline__ void copy_box(uint32 to, const TensorMap& map, const int(&c)[Rank],             \
                                           uint32 barrier) {                                                 \
    asm volatile("cp.async.bulk.tensor." #Rank                                                               \
                 "d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, " List                    \
                 "], [%2];" ::"r"(to),                                                                       \
                 "l"(&map), "r"(barrier), "r"(0), __VA_ARGS__                                                \
                 : "memory");                                                                                \
  }                                                                                                          \
  __device__ __forceinline__ void copy_box(uint32 to, const TensorMap& map, const int(&c)[Rank],             \
                                           uint32 barrier, uint16 mask) {                                    \
    asm volatile("{ .reg .b16 mask; cvt.u16.u32 mask, %3; cp.async.bulk.tensor." #Rank                       \
                 "d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, " List \
                 "], [%2], mask; }" ::"r"(to),                                                               \
                 "l"(&map), "r"(barrier), "r"(uint32(mask)), __VA_ARGS__                                     \
                 : "memory");                                                                                \
  }
KILN_COPY_BOX(2, "{%4, %5}", "r"(c[0]), "r"(c[1]))
KILN_COPY_BOX(3, "{%4, %5, %6}", "r"(c[0]), "r"(c[1]), "r"(c[2]))
KILN_COPY_BOX(4, "{%4, %5, %6, %7}", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]))
KILN_COPY_BOX(5, "{%4, %5, %6, %7, %8}", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(c[4]))
#undef KILN_COPY_BOX
/// The same of a map of windows: c has the first channel, where the first window begins, innermost axis
/// first, and its image; e says which of the windows' elements, how far from their beginning along each axis.
#define KILN_COPY_WINDOWS(Axes, Rank, List, Offsets, ...)                                                 \
  __device__ __forceinline__ void copy_windows(uint32 to, const TensorMap& map, const int(&c)[Rank],      \
                                               const uint16(&e)[Axes], uint32 barrier) {                  \
    asm volatile("cp.async.bulk.tensor." #Rank                                                            \
                 "d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, " List          \
                 "], [%2], " Offsets ";" ::"r"(to),                                                       \
                 "l"(&map), "r"(barrier), "r"(0), __VA_ARGS__                                             \
                 : "memory");                                                                             \
  }                                                                                                       \
  __device__ __forceinline__ void copy_windows(uint32 to, const TensorMap& map, const int(&c)[Rank],      \
                                               const uint16(&e)[Axes], uint32 barrier, uint16 mask) {     \
    asm volatile("{ .reg .b16 mask; cvt.u16.u32 mask, %3; cp.async.bulk.tensor." #Rank                    \
                 "d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast::cluster [%0], " \
                 "[%1, " List "], [%2], " Offsets ", mask; }" ::"r"(to),                                  \
                 "l"(&map), "r"(barrier), "r"(uint32(mask)), __VA_ARGS__                                  \
                 : "memory");                                                                             \
  }
KILN_COPY_WINDOWS(1, 3, "{%4, %5, %6}", "{%7}", "r"(c[0]), "r"(c[1]), "r"(c[2]), "h"(e[0]))
KILN_COPY_WINDOWS(2, 4, "{%4, %5, %6, %7}", "{%8, %9}", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "h"(e[0]),
                  "h"(e[1]))
KILN_COPY_WINDOWS(3, 5, "{%4, %5, %6, %7, %8}", "{%9, %10, %11}", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]),
                  "r"(c[4]), "h"(e[0]), "h"(e[1]), "h"(e[2]))
#undef KILN_COPY_WINDOWS

// ---- products of warpgroups ------------------------------------------------------------------------------

/// Before the first product of a run, whatever wrote the sums.
__device__ __forceinline__ void products_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Until at most Pending groups of products are under way.
template <int Pending>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// sums = a (64 × 16) times b (16 × N) + (keep ? sums : 0), N twice the number of sums. Descriptors tell where
// tiles stand in shared memory; the flags are 1 where k is not the contiguous axis. Lane 4 g + q of warp w
// holds rows 16 w + g and + 8, columns 8 j + 2 q and + 1 in sums[4 j …]. An a in registers is held as
// mma.sync holds it.
#define KILN_SUMS(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define KILN_SIXTEEN(i) KILN_SUMS(i), KILN_SUMS(i + 4), KILN_SUMS(i + 8), KILN_SUMS(i + 12)
#define KILN_SUMS_16 KILN_SIXTEEN(0)
#define KILN_SUMS_32 KILN_SIXTEEN(0), KILN_SIXTEEN(16)
#define KILN_SUMS_48 KILN_SUMS_32, KILN_SIXTEEN(32)
#define KILN_SUMS_64 KILN_SUMS_32, KILN_SIXTEEN(32), KILN_SIXTEEN(48)
#define KILN_SUMS_128 KILN_SUMS_64, KILN_SIXTEEN(64), KILN_SIXTEEN(80), KILN_SIXTEEN(96), KILN_SIXTEEN(112)
#define KILN_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define KILN_NAMES_32                                                      \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define KILN_NAMES_48 \
  KILN_NAMES_32       \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define KILN_NAMES_64 \
  KILN_NAMES_48       \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define KILN_NAMES_128                                                                           \
  KILN_NAMES_64                                                                                  \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "           \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
/// The numbers are those of the operands behind the sums.
#define KILN_PRODUCT(Count, Columns, Type, A, B, Keep, FlagA, FlagB)                                    \
  template <int TransposeA, int TransposeB>                                                             \
  __device__ __forceinline__ void group_multiply_add(float(&sums)[Count], uint64 a, uint64 b, int keep, \
                                                     Type) {                                            \
    asm volatile("{ .reg .pred keep; setp.ne.b32 keep, " Keep                                           \
                 ", 0; wgmma.mma_async.sync.aligned.m64" Columns "k16.f32." #Type "." #Type             \
                 " {" KILN_NAMES_##Count "}, " A ", " B ", keep, 1, 1, " FlagA ", " FlagB "; }"         \
                 : KILN_SUMS_##Count                                                                    \
                 : "l"(a), "l"(b), "r"(keep), "n"(TransposeA), "n"(TransposeB));                        \
  }
KILN_PRODUCT(16, "n32", bf16, "%16", "%17", "%18", "%19", "%20")
KILN_PRODUCT(16, "n32", f16, "%16", "%17", "%18", "%19", "%20")
KILN_PRODUCT(32, "n64", bf16, "%32", "%33", "%34", "%35", "%36")
KILN_PRODUCT(32, "n64", f16, "%32", "%33", "%34", "%35", "%36")
KILN_PRODUCT(64, "n128", bf16, "%64", "%65", "%66", "%67", "%68")
KILN_PRODUCT(64, "n128", f16, "%64", "%65", "%66", "%67", "%68")
KILN_PRODUCT(128, "n256", bf16, "%128", "%129", "%130", "%131", "%132")
KILN_PRODUCT(128, "n256", f16, "%128", "%129", "%130", "%131", "%132")
#undef KILN_PRODUCT
/// The same of elements that have one order only, k contiguous: of k so many steps, 32 bytes.
#define KILN_PRODUCT(Count, Columns, Steps, Type, A, B, Keep, ...)                                          \
  template <int TransposeA, int TransposeB>                                                                 \
  __device__ __forceinline__ void group_multiply_add(float(&sums)[Count], uint64 a, uint64 b, int keep,     \
                                                     __VA_ARGS__) {                                         \
    static_assert(!TransposeA && !TransposeB, "");                                                          \
    asm volatile("{ .reg .pred keep; setp.ne.b32 keep, " Keep                                               \
                 ", 0; wgmma.mma_async.sync.aligned.m64" Columns Steps ".f32." Type " {" KILN_NAMES_##Count \
                 "}, " A ", " B ", keep, 1, 1; }"                                                           \
                 : KILN_SUMS_##Count                                                                        \
                 : "l"(a), "l"(b), "r"(keep));                                                              \
  }
KILN_PRODUCT(64, "n128", "k8", "tf32.tf32", "%64", "%65", "%66", float)
KILN_PRODUCT(128, "n256", "k8", "tf32.tf32", "%128", "%129", "%130", float)
KILN_PRODUCT(64, "n128", "k32", "e4m3.e4m3", "%64", "%65", "%66", float8_pair<false, false>)
KILN_PRODUCT(64, "n128", "k32", "e4m3.e5m2", "%64", "%65", "%66", float8_pair<false, true>)
KILN_PRODUCT(64, "n128", "k32", "e5m2.e4m3", "%64", "%65", "%66", float8_pair<true, false>)
KILN_PRODUCT(64, "n128", "k32", "e5m2.e5m2", "%64", "%65", "%66", float8_pair<true, true>)
#undef KILN_PRODUCT
#define KILN_PRODUCT(Count, Columns, Type, A, B, Keep, Flag)                                             \
  template <int TransposeB>                                                                              \
  __device__ __forceinline__ void group_multiply_add(float(&sums)[Count], const uint32(&a)[4], uint64 b, \
                                                     int keep, Type) {                                   \
    asm volatile("{ .reg .pred keep; setp.ne.b32 keep, " Keep                                            \
                 ", 0; wgmma.mma_async.sync.aligned.m64" Columns "k16.f32." #Type "." #Type              \
                 " {" KILN_NAMES_##Count "}, {" A "}, " B ", keep, 1, 1, " Flag "; }"                    \
                 : KILN_SUMS_##Count                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep), "n"(TransposeB));      \
  }
KILN_PRODUCT(32, "n64", bf16, "%32, %33, %34, %35", "%36", "%37", "%38")
KILN_PRODUCT(32, "n64", f16, "%32, %33, %34, %35", "%36", "%37", "%38")
KILN_PRODUCT(64, "n128", bf16, "%64, %65, %66, %67", "%68", "%69", "%70")
KILN_PRODUCT(64, "n128", f16, "%64, %65, %66, %67", "%68", "%69", "%70")
#undef KILN_PRODUCT
#undef KILN_NAMES_16
#undef KILN_NAMES_32
#undef KILN_NAMES_48
#undef KILN_NAMES_64
#undef KILN_NAMES_128
#undef KILN_SUMS_32
#undef KILN_SUMS_48
#undef KILN_SUMS_64
#undef KILN_SUMS_128
#undef KILN_SUMS_16
#undef KILN_SIXTEEN
#undef KILN_SUMS

/// What this thread wrote to shared memory is there for products and copies that are ordered after a barrier.
__device__ __forceinline__ void fence_shared_writes() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Ends the life of what a sum held, before products that do not keep it.
__device__ __forceinline__ void forget(float& x) { asm volatile("" : "=f"(x)); }
/// Keeps the compiler from moving a sum across products that are under way.
__device__ __forceinline__ void pin(float& x) { asm volatile("" : "+f"(x)::"memory"); }

/// Orders that floats of shared memory be added to those in memory, whatever others add there; both at
/// multiples of 16 bytes. By one thread, which has to wait for it.
__device__ __forceinline__ void add_block(float* to, uint32 from, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
               "r"(from), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/// Until shared memory that this thread's orders read may be written again.
__device__ __forceinline__ void added_blocks_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
/// Until they are done.
__device__ __forceinline__ void added_blocks_end() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// ---- named barriers --------------------------------------------------------------------------------------

/// Until Count threads, whole warps, have called one of these functions with this barrier's number (not 0).
template <int Count>
__device__ __forceinline__ void meet(int number) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(number), "n"(Count) : "memory");
}
/// The same without waiting.
template <int Count>
__device__ __forceinline__ void let_pass(int number) {
  asm volatile("barrier.cta.arrive %0, %1;" ::"r"(number), "n"(Count) : "memory");
}
/// meet(); whether any of the threads said so.
template <int Count>
__device__ __forceinline__ bool meet_or(int number, bool mine) {
  uint32 any;
  asm volatile(
      "{ .reg .pred mine, any; setp.ne.b32 mine, %3, 0; barrier.cta.red.or.pred any, %1, %2, mine; selp.u32 "
      "%0, 1, 0, any; }"
      : "=r"(any)
      : "r"(number), "n"(Count), "r"(uint32(mine))
      : "memory");
  return any != 0;
}

// ---- registers -------------------------------------------------------------------------------------------

template <int Count>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}
template <int Count>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}

#endif
