// What reports of fusion cost an evaluation whose plan is there: nobody asks, somebody records, a file is
// written. The sides take turns in one run, so that the ratio means something on a noisy machine:
//
//     kiln_micro --benchmark_filter=Explain
#include <kiln/config.h>
#include <kiln/fusion_report.h>
#include <kiln/kiln.h>
#include <kiln/nn.h>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace {

using kiln::Tensor;

Tensor input(const kiln::Shape& shape) {
  return Tensor::from(std::vector<float>(static_cast<std::size_t>(shape.numel()), 0.5f), shape);
}

double seconds(const Tensor& x, int repeat) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < repeat; ++i) kiln::nn::softmax(x * 2.0f + 1.0f).eval();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / repeat;
}

double median(std::vector<double> v) {
  std::ranges::nth_element(v, v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2));
  return v[v.size() / 2];
}

/// Counters: the median time of either side in µs, and the median of the ratios of turns that follow each
/// other.
template <class On>
void by_turns(benchmark::State& state, On on) {
  const Tensor x = input({state.range(0), 64});
  constexpr int kRepeat = 200;
  std::vector<double> off_times, on_times, ratios;
  seconds(x, kRepeat);
  on([&] { seconds(x, kRepeat); });
  for (auto _ : state) {
    double off = 0, with = 0;
    const bool first = off_times.size() % 2 == 0;
    if (first) off = seconds(x, kRepeat);
    on([&] {
      seconds(x, 16);  // the plan is made anew where reports are wanted
      with = seconds(x, kRepeat);
    });
    seconds(x, 16);
    if (!first) off = seconds(x, kRepeat);
    off_times.push_back(off);
    on_times.push_back(with);
    ratios.push_back(with / off);
  }
  state.counters["off_us"] = 1e6 * median(off_times);
  state.counters["on_us"] = 1e6 * median(on_times);
  state.counters["ratio"] = median(ratios);
}

/// Both sides do the same: how far from 1 the ratio may be by chance.
void ExplainNobody(benchmark::State& state) {
  by_turns(state, [](const auto& run) { run(); });
}
BENCHMARK(ExplainNobody)->Arg(64)->Arg(4096)->Iterations(60)->Unit(benchmark::kMillisecond);

void ExplainFile(benchmark::State& state) {
  const std::string file = "/tmp/kiln-explain-bench.json";
  by_turns(state, [&](const auto& run) {
    kiln::Config c = kiln::config();
    c.explain = file;
    const kiln::ScopedConfig scope(c);
    run();
  });
  std::remove(file.c_str());
}
BENCHMARK(ExplainFile)->Arg(64)->Arg(4096)->Iterations(60)->Unit(benchmark::kMillisecond);

void ExplainRecorder(benchmark::State& state) {
  by_turns(state, [&](const auto& run) {
    const kiln::FusionRecorder recorder;
    run();
  });
}
BENCHMARK(ExplainRecorder)->Arg(64)->Arg(4096)->Iterations(60)->Unit(benchmark::kMillisecond);

}  // namespace
