// Process-wide counters behind kiln::statistics(): relaxed atomics, one cache line each would be waste.
#pragma once

#include <kiln/report.h>

#include <atomic>

namespace kiln::engine {

enum class Counter {
  Evaluations,
  PlanHits,
  PlanMisses,
  KernelsCompiled,
  KernelsFromDisk,
  KernelHits,
  Launches,
  LibraryCalls,
  PlanNs,
  CompileNs,
  Fallbacks,
  VmLaunches,
  Graphs,
  Cuts,
  VariantRuns,
  VariantsTried,
  VariantsWon,
  Replays,
  kCount
};
extern std::atomic<std::uint64_t> counters[static_cast<int>(Counter::kCount)];
inline void count(Counter c, std::uint64_t n = 1) {
  counters[static_cast<int>(c)].fetch_add(n, std::memory_order_relaxed);
}

}  // namespace kiln::engine
