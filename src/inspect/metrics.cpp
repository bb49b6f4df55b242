#include <kiln/metrics.h>

#include "support/check.h"

#include <cstdio>
#include <string_view>

namespace kiln {
namespace {

struct Metric {
  std::uint64_t Statistics::* counter;
  std::string_view name, help;
  bool time = false;
};

constexpr Metric kMetrics[] = {
    {&Statistics::evaluations, "evaluations", "evaluations that ran at least one step"},
    {&Statistics::plan_hits, "plan_hits", "evaluations whose plan was in the plan cache"},
    {&Statistics::plan_misses, "plan_misses", "evaluations that had to be planned"},
    {&Statistics::kernels_compiled, "kernels_compiled", "kernels that the compiler made"},
    {&Statistics::kernels_from_disk, "kernels_from_disk", "kernels loaded from the disk cache"},
    {&Statistics::kernel_hits, "kernel_hits", "kernels that planning found in memory"},
    {&Statistics::launches, "launches", "kernels run"},
    {&Statistics::library_calls, "library_calls", "contractions, sorts and other calls of a library"},
    {&Statistics::plan_ns, "plan_ns", "time spent planning, compiling excluded", true},
    {&Statistics::compile_ns, "compile_ns", "time spent compiling and loading, summed over threads", true},
    {&Statistics::fallbacks, "fallbacks",
     "kernels that did not compile, traces planned op by op or interpreted"},
    {&Statistics::vm_launches, "vm_launches", "launches that began without machine code"},
    {&Statistics::graphs, "graphs", "evaluations that were enqueued as one CUDA graph"},
    {&Statistics::cuts, "cuts", "recordings computed because they grew long and nothing was read"},
    {&Statistics::variant_runs, "variant_runs",
     "evaluations that timed a variant or what it is compared with"},
    {&Statistics::variants_tried, "variants_tried", "comparisons of variants that ended"},
    {&Statistics::variants_won, "variants_won", "comparisons after which the variant was taken"},
    {&Statistics::replays, "replays", "calls of compiled functions that recorded nothing"},
};
static_assert(sizeof(Statistics) == std::size(kMetrics) * sizeof(std::uint64_t), "a counter has no name");

}  // namespace

std::string metrics_prometheus(const Statistics& counters) {
  std::string out;
  for (const Metric& m : kMetrics) {
    std::string_view name = m.name;
    if (m.time) name.remove_suffix(3);  // _ns
    const std::string full = cat("kiln_", name, m.time ? "_seconds_total" : "_total");
    char value[40];
    if (m.time)
      std::snprintf(value, sizeof value, "%.9f", static_cast<double>(counters.*m.counter) * 1e-9);
    else
      std::snprintf(value, sizeof value, "%llu", static_cast<unsigned long long>(counters.*m.counter));
    out += cat("# HELP ", full, " ", m.help, "\n# TYPE ", full, " counter\n", full, " ", value, "\n");
  }
  return out;
}

std::string metrics_json(const Statistics& counters) {
  std::string out = "{";
  for (const Metric& m : kMetrics)
    out += cat(out.size() > 1 ? "," : "", "\"", m.name, "\":", counters.*m.counter);
  return out + "}";
}

}  // namespace kiln
