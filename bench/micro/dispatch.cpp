// Record, evaluate, free: everything between the user's line and the kernel, warm; and the parts below it.
#include "device/cpu/pool.h"
#include "device/cpu/threads.h"
#include "record/node.h"

#include <kiln/kiln.h>

#include <benchmark/benchmark.h>

#include <vector>

namespace {

using kiln::Tensor;

Tensor input(std::int64_t n) { return Tensor::from(std::vector<float>(static_cast<std::size_t>(n), 0.5f)); }

void DispatchAdd(benchmark::State& state) {
  const Tensor a = input(16), b = input(16);
  for (auto _ : state) (a + b).eval();
}
BENCHMARK(DispatchAdd);

/// The time of one more recorded operation is the slope between the arguments.
void DispatchChain(benchmark::State& state) {
  const Tensor a = input(16);
  for (auto _ : state) {
    Tensor y = a;
    for (int i = 0; i < state.range(0); ++i) y = i % 2 ? y * 0.5 : y + 1;
    y.eval();
  }
}
BENCHMARK(DispatchChain)->Arg(1)->Arg(5)->Arg(10)->Arg(50);

/// An optimizer's step over many small tensors: one evaluation of many launches.
void DispatchOptimizerStep(benchmark::State& state) {
  struct Parameter {
    Tensor value, gradient, mean, square;
  };
  std::vector<Parameter> parameters;
  for (int i = 0; i < state.range(0); ++i) parameters.push_back({input(16), input(16), input(16), input(16)});
  std::vector<Tensor> out;
  for (auto _ : state) {
    out.clear();
    for (const Parameter& q : parameters) {
      const Tensor mean = 0.9 * q.mean + 0.1 * q.gradient;
      const Tensor square = 0.999 * q.square + 0.001 * (q.gradient * q.gradient);
      out.push_back(q.value - 1e-3 * mean / (sqrt(square) + 1e-8));
      out.push_back(mean);
      out.push_back(square);
    }
    eval(out);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(DispatchOptimizerStep)->Arg(1)->Arg(10)->Arg(148);

void DispatchFromThreads(benchmark::State& state) {
  const Tensor a = input(16), b = input(16);
  for (auto _ : state) (a * b + a).eval();
}
BENCHMARK(DispatchFromThreads)->Threads(1)->Threads(2)->UseRealTime();

void PoolAllocateAndFree(benchmark::State& state) {
  for (auto _ : state) {
    kiln::ir::Buffer* buffer = kiln::cpu::allocate(static_cast<std::uint64_t>(state.range(0)));
    benchmark::DoNotOptimize(buffer->data);
    kiln::ir::release(buffer);
  }
}
BENCHMARK(PoolAllocateAndFree)->Arg(64)->Arg(4096)->Arg(1 << 20)->Arg(64 << 20);

void ParallelFor(benchmark::State& state) {
  for (auto _ : state) kiln::cpu::parallel_for(8, 1, [](std::int64_t, std::int64_t, int) {});
}
BENCHMARK(ParallelFor)->UseRealTime();

}  // namespace
