// Expressions and keys of kernels, and a hit in the disk cache: what an evaluation pays for a kernel that is
// there.
#include "kernel/kernel.h"
#include "cache/disk_cache.h"
#include "engine/plan.h"
#include "ir/graph_builder.h"
#include "kernel/expr.h"
#include "lower/lower.h"
#include "plan/fuse.h"

#include <kiln/kiln.h>

#include <benchmark/benchmark.h>

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace {

using namespace kiln;

/// A chain of expressions that are in the pool.
void InternExpressions(benchmark::State& state) {
  kernel::ExprPool pool;
  const kernel::ExprId slot = pool.intern({kernel::Prim::Slot, DType::Float32});
  for (auto _ : state) {
    kernel::ExprNode node{kernel::Prim::Neg, DType::Float32, slot};
    for (int i = 0; i < state.range(0); ++i) node.a = pool.intern(node);
    benchmark::DoNotOptimize(node.a);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(InternExpressions)->Arg(500);

/// The key of a kernel of so many operations.
void HashKernel(benchmark::State& state) {
  ir::GraphBuilder b;
  ir::NodeId x = b.leaf(DType::Float32, {64, 64});
  for (int i = 0; i < state.range(0); ++i) x = b.op(i % 2 != 0 ? ir::Op::tanh : ir::Op::abs, {x});
  b.root(x);
  const schedule::Target& target = engine::planning_target();
  const plan::Regions regions = plan::fuse(b.graph, target);
  const auto lowered = lower::lower(b.graph, regions, regions.regions.front(), target);
  for (auto _ : state) benchmark::DoNotOptimize(kernel::hash(lowered.kernel));
  state.counters["expressions"] = static_cast<double>(lowered.kernel.pool.size());
}
BENCHMARK(HashKernel)->Arg(10)->Arg(100)->Unit(benchmark::kMicrosecond);

/// An entry of so many bytes, in the page cache.
void DiskCacheHit(benchmark::State& state) {
  std::string directory = (std::filesystem::temp_directory_path() / "kiln-micro-XXXXXX").string();
  if (!mkdtemp(directory.data())) return state.SkipWithError("no directory");
  engine::DiskCache cache({engine::DiskCacheOptions::Mode::ReadWrite, directory + "/kiln"});
  cache.put("key", std::string(static_cast<std::size_t>(state.range(0)), 'x'));
  bool hit = true;
  for (auto _ : state) hit = cache.get("key") && hit;
  if (!hit) state.SkipWithError("no hit");
  std::filesystem::remove_all(directory);
}
BENCHMARK(DiskCacheHit)->Arg(16 << 10)->Unit(benchmark::kMicrosecond);

}  // namespace
