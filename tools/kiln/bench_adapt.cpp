#include "bench_adapt.h"

#include <kiln/adapt.h>
#include <kiln/config.h>
#include <kiln/report.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace kiln::tool {
namespace {

// Short turns, and many: on a machine with other work most of them are not interrupted.
constexpr std::size_t kPairs = 21, kMostPairs = 301;
constexpr double kSampleSeconds = 2e-4, kEnoughSeconds = 0.5;
constexpr double kError = 0.05;
constexpr double kFarFromFloor = 1.5;

Config with(Adapt adapt) {
  Config c = config();
  c.adapt = adapt;
  return c;
}

double time_of(const Program& program, const BenchDevice& device, int repeat) {
  const double begin = seconds();
  for (int i = 0; i < repeat; ++i) run(program);
  device.wait();
  return (seconds() - begin) / repeat;
}

struct Summary {
  std::size_t programs = 0, faster = 0, slower = 0;
  double mean = 1, low = 1, high = 1;  // geometric, with an interval of 95 %
};

/// Of programs whose first time was at least `least` of their floor.
Summary summary_of(const std::vector<Adapted>& all, double least) {
  Summary s;
  double sum = 0, squares = 0;
  for (const Adapted& a : all) {
    if (a.pairs == 0 || a.first_ratio < least) continue;
    const double log = std::log(a.gain.median);
    ++s.programs;
    s.faster += a.gain.low > 1;
    s.slower += a.gain.high < 1;
    sum += log;
    squares += log * log;
  }
  if (s.programs == 0) return s;
  const auto n = static_cast<double>(s.programs);
  const double mean = sum / n, variance = std::max(0.0, squares / n - mean * mean);
  const double half = 1.96 * std::sqrt(variance / n);
  s.mean = std::exp(mean);
  s.low = std::exp(mean - half);
  s.high = std::exp(mean + half);
  return s;
}

std::string line_of(const char* what, const Summary& s) {
  char text[200];
  std::snprintf(text, sizeof text, "%-34s %5zu   %6.3f  (%.3f to %.3f)   %5zu  %5zu\n", what, s.programs,
                s.mean, s.low, s.high, s.faster, s.slower);
  return text;
}

std::string won_since(const std::vector<AdaptResult>& before) {
  std::string out;
  for (const AdaptResult& now : adapt_results()) {
    std::uint64_t was = 0;
    for (const AdaptResult& b : before)
      if (b.variant == now.variant && b.kind == now.kind) was = b.won;
    if (now.won > was) out.append(out.empty() ? "" : " ").append(name(now.variant));
  }
  return out;
}

}  // namespace

Adapted adapt(const Program& program, BenchDevice& device) {
  Adapted out;
  const Config planned = with(Adapt::Off), settled = with(Adapt::Tune);
  const Statistics before = statistics();
  const std::vector<AdaptResult> known = adapt_results();
  {
    const ScopedConfig scope(settled);
    run(program);  // repeats itself until it is settled
    wait_for_compiles();
    run(program);
  }
  out.tried = statistics().variants_tried - before.variants_tried;
  out.won = statistics().variants_won - before.variants_won;
  out.taken = won_since(known);
  run(program);
  const int repeat =
      std::max(1, static_cast<int>(kSampleSeconds / std::max(time_of(program, device, 1), 1e-7)));
  std::vector<double> times[2];  // as planned, settled
  const double start = seconds();
  while (times[0].size() < kPairs || (times[0].size() < kMostPairs && seconds() - start < kEnoughSeconds))
    for (const std::size_t side : {times[0].size() % 2, 1 - times[0].size() % 2}) {
      const ScopedConfig scope(side == 0 ? planned : settled);
      times[side].push_back(time_of(program, device, repeat));
    }
  out.gain = median_ratio(times[0], times[1], kError);
  out.pairs = times[0].size();
  return out;
}

std::string adapt_text(const std::vector<Adapted>& all) {
  std::string out =
      "\nas planned / settled               count     mean  (95 %)             faster slower\n" +
      line_of("all", summary_of(all, 0)) +
      line_of("first time above 1.5 x its floor", summary_of(all, kFarFromFloor));
  std::vector<Adapted> changed;
  for (const Adapted& a : all)
    if (a.won > 0) changed.push_back(a);
  out += line_of("those with a variant", summary_of(changed, 0));
  out += "\n" + to_text(adapt_results());
  return out;
}

}  // namespace kiln::tool
