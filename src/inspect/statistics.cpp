#include "inspect/statistics.h"

namespace kiln::engine {
std::atomic<std::uint64_t> counters[static_cast<int>(Counter::kCount)];
}

namespace kiln {

Statistics statistics() {
  using engine::Counter;
  auto get = [](Counter c) { return engine::counters[static_cast<int>(c)].load(std::memory_order_relaxed); };
  return {get(Counter::Evaluations),     get(Counter::PlanHits),
          get(Counter::PlanMisses),      get(Counter::KernelsCompiled),
          get(Counter::KernelsFromDisk), get(Counter::KernelHits),
          get(Counter::Launches),        get(Counter::LibraryCalls),
          get(Counter::PlanNs),          get(Counter::CompileNs),
          get(Counter::Fallbacks),       get(Counter::VmLaunches),
          get(Counter::Graphs),          get(Counter::Cuts),
          get(Counter::VariantRuns),     get(Counter::VariantsTried),
          get(Counter::VariantsWon),     get(Counter::Replays)};
}

void reset_statistics() {
  for (auto& c : engine::counters) c.store(0, std::memory_order_relaxed);
}

}  // namespace kiln
