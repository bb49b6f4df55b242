// The CPU executor: parallel loops and independent jobs over one set of threads (oneTBB, seen only by
// threads.cpp).
//
// Chunk boundaries depend on (n, grain, thread_count) alone; which thread runs a chunk does not: each thread
// begins with its own share, so that consecutive kernels find their data in the same core's cache, then helps
// the others. Calls from inside a chunk or a job run inline on the calling thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace kiln::cpu {

/// Threads a parallel loop uses: KILN_NUM_THREADS, else CPUs of the affinity mask within the control group's
/// quota (rounded up). 1 in a forked child, where the threads do not exist.
int thread_count();
/// One line: why thread_count() is what it is.
std::string thread_count_reason();

using LoopFn = void (*)(void* context, std::int64_t begin, std::int64_t end, int slot);

/// Calls fn over disjoint chunks that cover [0, n), each of at least `grain` iterations (but for n < grain:
/// one chunk), and returns when all are done. slot is in [0, thread_count()) and differs between chunks that
/// run at the same time within this call. What fn throws is rethrown here, once, after the loop has stopped.
void parallel_for(std::int64_t n, std::int64_t grain, LoopFn fn, void* context);

/// The same for a callable (begin, end, slot).
template <class F>
void parallel_for(std::int64_t n, std::int64_t grain, F&& f) {
  parallel_for(
      n, grain,
      [](void* context, std::int64_t begin, std::int64_t end, int slot) {
        (*static_cast<std::remove_reference_t<F>*>(context))(begin, end, slot);
      },
      const_cast<void*>(static_cast<const void*>(&f)));
}

/// Runs independent jobs (compiles), in parallel where threads are free. All run; the first exception is
/// rethrown.
void run_jobs(std::span<std::function<void()>> jobs);

/// At least `bytes` of 64-byte aligned memory of the calling thread, valid until its next call or its end. It
/// belongs to the thread and not to the slot: two user threads may both run a short loop inline as slot 0.
std::byte* scratch(std::size_t bytes);

}  // namespace kiln::cpu
