// Counters of the process: evaluations, plans, kernels, launches, times. Reading them is cheap.
#pragma once

#include <cstdint>

namespace kiln {

struct Statistics {
  std::uint64_t evaluations = 0;        ///< evaluations that ran at least one step
  std::uint64_t plan_hits = 0;          ///< evaluations whose plan was in the plan cache
  std::uint64_t plan_misses = 0;        ///< evaluations that had to be planned
  std::uint64_t kernels_compiled = 0;   ///< kernels that the compiler made
  std::uint64_t kernels_from_disk = 0;  ///< kernels loaded from the disk cache
  std::uint64_t kernel_hits = 0;        ///< kernels that planning found in memory
  std::uint64_t launches = 0;           ///< kernels run; on the device null, that would have run
  std::uint64_t library_calls = 0;      ///< contractions run by a library
  std::uint64_t plan_ns = 0;            ///< time spent planning, compiling excluded
  std::uint64_t compile_ns = 0;         ///< time spent compiling and loading, summed over threads
  std::uint64_t fallbacks =
      0;  ///< kernels run by the vm because they did not compile; traces planned op by op, or interpreted
  std::uint64_t vm_launches = 0;     ///< launches that began without machine code
  std::uint64_t graphs = 0;          ///< evaluations that were enqueued as one CUDA graph
  std::uint64_t cuts = 0;            ///< recordings computed because they grew long and nothing was read
  std::uint64_t variant_runs = 0;    ///< evaluations that timed a variant or its rival (KILN_ADAPT)
  std::uint64_t variants_tried = 0;  ///< comparisons that ended
  std::uint64_t variants_won = 0;    ///< of them those after which the variant was taken
  std::uint64_t replays = 0;         ///< calls of compiled functions (kiln/compile.h) that recorded nothing
};

/// Totals since the process began (or reset_statistics).
Statistics statistics();
void reset_statistics();

/// Waits until all kernels in the background compiler (KILN_TIER=auto) are ready: for benchmarks, and for
/// programs that fill their disk cache before they end. During exit it returns at once.
void wait_for_compiles();

/// Forgets plans and kernels in memory (the disk cache stays): for tests and benchmarks of cold paths. Not
/// thread-safe: no other thread may evaluate during the call.
void clear_memory_caches();

}  // namespace kiln
