// What products of bfloat16 take on a GPU, by extents: with whole units of memory, and with one more.
#include <kiln/kiln.h>

#include <benchmark/benchmark.h>

namespace {

using namespace kiln;

void GpuProduct(benchmark::State& state) {
  constexpr int kTogether = 10;
  Config c = config();
  c.device = "cuda";
  const ScopedConfig scope(c);
  try {
    const Tensor
        x = random::normal(random::Key(1), {state.range(0), state.range(1)}).astype(DType::BFloat16).eval(),
        y = random::normal(random::Key(2), {state.range(1), state.range(2)}).astype(DType::BFloat16).eval();
    for (int i = 0; i < 3; ++i) {
      matmul(x, y).eval();
      wait_for_compiles();
    }
    synchronize(Device::cuda(0));
    for (auto _ : state) {
      for (int i = 0; i < kTogether; ++i) matmul(x, y).eval();
      synchronize(Device::cuda(0));
    }
    state.SetItemsProcessed(state.iterations() * kTogether);  // products
  } catch (const std::exception& e) {
    state.SkipWithError(e.what());
  }
}

BENCHMARK(GpuProduct)
    ->ArgNames({"m", "k", "n"})
    ->Args({4096, 4096, 4096})
    ->Args({4096, 4096, 4097})
    ->Args({4096, 4097, 4096})
    ->Args({8192, 768, 50264})
    ->Args({8192, 768, 50257})
    ->Args({43690, 768, 33})
    ->UseRealTime();

}  // namespace
