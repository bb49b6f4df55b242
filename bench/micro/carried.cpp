// Loops that carry state and read little of it, a step each: what tests/api/carried_state_test.cpp counts,
// timed.
#include "lattice_boltzmann.h"
#include "test_data.h"

#include <kiln/kiln.h>

#include <benchmark/benchmark.h>

#include <cmath>

namespace {

using kiln::Tensor;
using kiln::test::data;

/// Argument: whether every step evaluates all nine arrays (1), or reads their mass alone (0).
void CarriedLatticeBoltzmann(benchmark::State& state) {
  kiln::test::LatticeBoltzmann flow;
  for (auto _ : state) {
    flow.step();
    if (state.range(0))
      kiln::eval(flow.f);
    else
      benchmark::DoNotOptimize(sum(flow.density).item<float>());
  }
}
BENCHMARK(CarriedLatticeBoltzmann)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

/// Adam by hand on a linear model of n weights; reads the loss alone.
void CarriedAdam(benchmark::State& state) {
  const std::int64_t n = state.range(0);
  const Tensor x = data({64, n}), y = data({64, 1});
  Tensor w = kiln::zeros({n, 1}), m = w, v = w;
  int t = 0;
  for (auto _ : state) {
    const Tensor error = matmul(x, w) - y;
    const Tensor loss = mean(error * error);
    const Tensor gradient = matmul(x.T(), error) * (2.0 / 64);
    m = m * 0.9 + gradient * 0.1;
    v = v * 0.999 + gradient * gradient * 0.001;
    ++t;
    w = w - m / (1 - std::pow(0.9, t)) * 0.01 / (sqrt(v / (1 - std::pow(0.999, t))) + 1e-8);
    benchmark::DoNotOptimize(loss.item<float>());
  }
}
BENCHMARK(CarriedAdam)->Arg(16)->Arg(4096)->Unit(benchmark::kMicrosecond);

/// Decoding of one token with a cache of n rows of 256 that is updated in place, no eval.
void CarriedDecode(benchmark::State& state) {
  const std::int64_t n = state.range(0), width = 256;
  const Tensor w = data({width, width}) * 0.06f, rows = kiln::arange(n);
  Tensor keys = kiln::zeros({n, width}), token = data({1, width});
  std::int64_t t = 0;
  for (auto _ : state) {
    const Tensor key = matmul(token, w);
    keys(kiln::range(t, t + 1), kiln::slice::all()) = key;
    const Tensor scores = where(rows <= t, sum(keys * key, -1), -1e9);
    const Tensor weights = kiln::nn::softmax(scores);
    const Tensor mixed = matmul(weights.reshape({1, n}), keys);
    token = mixed / sqrt(mean(mixed * mixed) + 1e-6);
    benchmark::DoNotOptimize(argmax(token).item<std::int64_t>());
    t = (t + 1) % n;
  }
}
BENCHMARK(CarriedDecode)->Arg(1024)->Unit(benchmark::kMicrosecond);

}  // namespace
