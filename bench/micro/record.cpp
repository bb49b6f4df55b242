// Recording and freeing operations; nothing is evaluated.
#include <kiln/kiln.h>

#include <benchmark/benchmark.h>

#include <vector>

namespace {

using kiln::Tensor;

Tensor input() {
  const std::vector<float> values(1024, 0.5f);
  return Tensor::from(values);
}

void RecordBinary(benchmark::State& state) {
  const Tensor a = input(), b = input();
  for (auto _ : state) benchmark::DoNotOptimize(a + b);
}
BENCHMARK(RecordBinary);

void RecordScalar(benchmark::State& state) {
  const Tensor a = input();
  for (auto _ : state) benchmark::DoNotOptimize(a * 2.0f);
}
BENCHMARK(RecordScalar);

void RecordChain(benchmark::State& state) {
  const Tensor a = input();
  for (auto _ : state) {
    Tensor y = a;
    for (int i = 0; i < state.range(0); ++i) y = y + 1;
    benchmark::DoNotOptimize(y);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(RecordChain)->Arg(10)->Arg(100)->Arg(100'000);

void RecordSoftmax(benchmark::State& state) {
  const Tensor a = input().reshape({4, 256});
  a.eval();
  for (auto _ : state) benchmark::DoNotOptimize(kiln::nn::softmax(a));
}
BENCHMARK(RecordSoftmax);

}  // namespace
