#include "engine/trace_log.h"

#include "device/cpu/measure.h"
#include "support/check.h"
#include "support/log.h"

#include <cstdio>

namespace kiln::engine {
namespace {

const char* text(Verdict v) {
  switch (v) {
    case Verdict::Memory: return "memory";
    case Verdict::Disk: return "disk";
    case Verdict::Compiled: return "compiled";
    case Verdict::Vm: return "vm";
  }
  return "";
}

}  // namespace

void log_launch(std::span<const Launch> launches, Verdict from, double seconds) {
  const Launch& l = launches.front();
  char figures[160];
  double bytes = 0;
  for (const Launch& each : launches) bytes += static_cast<double>(each.bytes);
  const double gbps = bytes / seconds * 1e-9;
  std::snprintf(figures, sizeof figures, "%9.3f us %8.2f GB/s %4.0f%% of copy  %-8s", seconds * 1e6, gbps,
                100 * gbps / cpu::ceilings().copy_gbps, text(from));
  log(Topic::Kernel, cat(figures, " ", l.kernel->name, " ", l.shape,
                         launches.size() > 1 ? cat(" and ", launches.size() - 1, " more") : std::string(),
                         "  [", l.ops, "]"));
}

void log_library(std::string_view what, DType dtype, std::span<const std::int64_t> dims, double seconds) {
  char figures[160];
  double elements = 1;
  for (std::int64_t d : dims) elements *= static_cast<double>(d);
  std::snprintf(figures, sizeof figures, "%9.3f us %8.2f Melem/s  library ", seconds * 1e6,
                elements / seconds * 1e-6);
  log(Topic::Kernel, cat(figures, " ", what, " ", name(dtype), " ", to_string(dims)));
}

void log_matmul(const Matmul& m, double seconds) {
  double flops = 2.0 * static_cast<double>(m.m) * static_cast<double>(m.n) * static_cast<double>(m.k);
  for (std::int64_t b : m.batch) flops *= static_cast<double>(b);
  char figures[160];
  std::snprintf(figures, sizeof figures, "%9.3f us %8.2f GFLOP/s  library ", seconds * 1e6,
                flops / seconds * 1e-9);
  log(Topic::Kernel,
      cat(figures, " matmul ", name(m.dtype), " (", m.m, ", ", m.k, ") @ (", m.k, ", ", m.n, ")"));
}

}  // namespace kiln::engine
