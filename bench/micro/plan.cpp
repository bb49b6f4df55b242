// The walk that gives a trace its key, and planning without compiling (the kernels are in memory).
#include "plan_graphs.h"

#include "engine/plan.h"
#include "engine/walk.h"
#include "lower/lower.h"
#include "plan/fuse.h"
#include "transform/transform.h"

#include <kiln/kiln.h>
#include <kiln/report.h>

#include <benchmark/benchmark.h>

#include <vector>

namespace {

using kiln::Tensor;

Tensor chain(const Tensor& x, std::int64_t ops) {
  Tensor y = x;
  for (std::int64_t i = 0; i < ops; ++i) y = i % 2 ? y * 0.5 : y + 1;
  return y;
}

Tensor input(std::int64_t n) { return Tensor::from(std::vector<float>(static_cast<std::size_t>(n), 0.5f)); }

/// Nodes numbered and hashed: what every evaluation pays.
void WalkChain(benchmark::State& state) {
  const Tensor y = chain(input(16), state.range(0));
  kiln::ir::Node* roots[] = {y.node()};
  kiln::engine::Walk walk;
  for (auto _ : state) {
    const kiln::ir::TraceGuard guard;
    benchmark::DoNotOptimize(kiln::engine::walk_trace(roots, guard, 0, false, walk));
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(WalkChain)->Arg(1)->Arg(10)->Arg(1000)->Arg(10'000);

/// A new shape in known classes: plans, and finds every kernel in memory.
void PlanNewShape(benchmark::State& state) {
  const std::int64_t ops = state.range(0);
  std::int64_t n = 1000;
  const Tensor x = input(1'000'000);
  chain(x(kiln::range(0, 999)), ops).eval();
  const kiln::Statistics before = kiln::statistics();
  for (auto _ : state) {
    state.PauseTiming();
    const Tensor part = x(kiln::range(0, n++));
    const Tensor y = chain(part, ops);
    state.ResumeTiming();
    y.eval();
  }
  const kiln::Statistics after = kiln::statistics();
  state.counters["compiled"] = static_cast<double>(after.kernels_compiled - before.kernels_compiled);
  state.counters["plan_us"] =
      static_cast<double>(after.plan_ns - before.plan_ns) * 1e-3 /
      static_cast<double>(std::max<std::uint64_t>(after.plan_misses - before.plan_misses, 1));
}
BENCHMARK(PlanNewShape)->Arg(1)->Arg(10)->Arg(50)->Iterations(2000)->Unit(benchmark::kMicrosecond);

/// Planning a long trace: the compiler runs in the first iteration only.
void PlanLongTrace(benchmark::State& state) {
  const Tensor x = input(256);
  std::int64_t n = 100;
  for (auto _ : state) {
    state.PauseTiming();
    const Tensor y = chain(x(kiln::range(0, n++)), state.range(0));
    const kiln::Statistics before = kiln::statistics();
    state.ResumeTiming();
    y.eval();
    state.PauseTiming();
    const kiln::Statistics after = kiln::statistics();
    state.counters["plan_ms"] = static_cast<double>(after.plan_ns - before.plan_ns) * 1e-6;
    state.ResumeTiming();
  }
}
BENCHMARK(PlanLongTrace)->Arg(10'000)->Iterations(5)->Unit(benchmark::kMillisecond);

/// The planner by itself, over a graph whole: transform, fuse, lower and hash. Linear when us_per_edge stays.
void PlanGraph(benchmark::State& state, kiln::ir::GraphBuilder (*make)(int)) {
  const kiln::ir::Graph graph = make(static_cast<int>(state.range(0))).graph;
  const kiln::schedule::Target& target = kiln::engine::planning_target();
  for (auto _ : state) {
    const kiln::transform::Transformed t = kiln::transform::transform(graph);
    const kiln::plan::Regions regions = kiln::plan::fuse(t.graph, target);
    for (const kiln::plan::Region& r : regions.regions)
      if (r.kind == kiln::plan::Region::Kind::Fused)
        benchmark::DoNotOptimize(kiln::kernel::hash(kiln::lower::lower(t.graph, regions, r, target).kernel));
    state.counters["regions"] = static_cast<double>(regions.regions.size());
  }
  const auto edges = static_cast<double>(kiln::bench::edges(graph));
  state.counters["nodes"] = static_cast<double>(graph.size());
  state.counters["us_per_edge"] =
      benchmark::Counter(edges * 1e-6 * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK_CAPTURE(PlanGraph, Random, kiln::bench::random_graph)
    ->Arg(100)
    ->Arg(1000)
    ->Arg(10'000)
    ->Arg(30'000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(PlanGraph, Layers, kiln::bench::layers)
    ->Arg(10)
    ->Arg(100)
    ->Arg(1000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(PlanGraph, Star, kiln::bench::star)
    ->Arg(100)
    ->Arg(1000)
    ->Arg(10'000)
    ->Unit(benchmark::kMillisecond);

}  // namespace
