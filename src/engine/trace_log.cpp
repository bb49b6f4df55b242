#include "engine/trace_log.h"

#include "ir/custom.h"
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

void log_launch(std::span<const Launch> launches, Verdict from, double seconds, double copy_gbps) {
  const Launch& l = launches.front();
  char figures[160];
  double bytes = 0;
  for (const Launch& each : launches) bytes += static_cast<double>(each.bytes);
  const double gbps = bytes / seconds * 1e-9;
  if (seconds > 0)  // 0: of a device that runs nothing
    std::snprintf(figures, sizeof figures, "%9.3f us %8.2f GB/s %4.0f%% of copy  %-8s", seconds * 1e6, gbps,
                  100 * gbps / copy_gbps, text(from));
  else
    std::snprintf(figures, sizeof figures, "  not run %.0f bytes  %-8s", bytes, text(from));
  log(Topic::Kernel, cat(figures, " ", l.kernel->name, " ", l.extents,
                         launches.size() > 1 ? cat(" and ", launches.size() - 1, " more") : std::string(),
                         "  [", l.ops, "]"));
}

void log_attention(const AttentionStep& step, double seconds) {
  const plan::Attention& a = *step.what;
  const double flops = 2.0 * static_cast<double>(a.batch) * static_cast<double>(a.rows) *
                       static_cast<double>(a.columns) * static_cast<double>(a.depth + a.width);
  char figures[160];
  std::snprintf(figures, sizeof figures, "%9.3f us %8.2f GFLOP/s  ", seconds * 1e6,
                seconds > 0 ? flops * 1e-9 / seconds : 0.0);
  log(Topic::Kernel, cat(figures, "attention ", name(a.q.dtype), " ", a.batch, " x (", a.rows, ", ", a.depth,
                         ") @ (", a.depth, ", ", a.columns, ") @ (", a.columns, ", ", a.width, ")"));
}

void log_pair_sums(const PairSumsStep& step, double seconds) {
  const plan::PairSums& s = *step.what;
  double flops = 0;  // for each pair
  for (const plan::PairSums::Product& p : s.products) flops += 2.0 * static_cast<double>(p.depth);
  for (const plan::PairSums::Sum& x : s.sums) flops += 2.0 * static_cast<double>(x.width);
  flops *= static_cast<double>(s.batch) * static_cast<double>(s.rows) * static_cast<double>(s.columns);
  char figures[160];
  std::snprintf(figures, sizeof figures, "%9.3f us %8.2f GFLOP/s  ", seconds * 1e6,
                seconds > 0 ? flops * 1e-9 / seconds : 0.0);
  log(Topic::Kernel,
      cat(figures, "gradient of attention ", name(s.products[0].x.dtype), " ", s.batch, " x ", s.rows, " x ",
          s.columns, ", ", s.products.size(), " products, ", s.sums.size(), " sums"));
}

void log_library(const LibraryCall& call, double seconds) {
  char figures[160];
  const auto line = [&](double amount, const char* unit, const std::string& what) {
    if (seconds > 0)
      std::snprintf(figures, sizeof figures, "%9.3f us %8.2f %s  library ", seconds * 1e6, amount / seconds,
                    unit);
    else
      std::snprintf(figures, sizeof figures, "  not run  library ");
    log(Topic::Kernel, cat(figures, " ", ir::name_of(call.op, {call.attr64, call.attrs}), " ", what));
  };
  if (call.op == ir::Op::custom) {  // which may have no operands
    double elements = 1;
    for (const std::int64_t d : call.dims) elements *= static_cast<double>(d);
    return line(elements * 1e-6, "Melem/s", cat(name(call.dtype), " ", to_string(call.dims)));
  }
  const ArrayOperand& first = call.operands.front();
  const ArrayOperand& last = call.operands.back();
  if (call.op == ir::Op::matmul) {
    double flops = 2.0 * static_cast<double>(first.dims.back());
    for (std::int64_t d : call.dims) flops *= static_cast<double>(d);
    const std::int64_t m = call.dims[call.dims.size() - 2], n = call.dims.back(), k = first.dims.back();
    return line(flops * 1e-9, "GFLOP/s", cat(name(call.dtype), " (", m, ", ", k, ") @ (", k, ", ", n, ")"));
  }
  double elements = 1;
  for (std::int64_t d : last.dims) elements *= static_cast<double>(d);
  line(elements * 1e-6, "Melem/s", cat(name(first.dtype), " ", to_string(last.dims)));
}

}  // namespace kiln::engine
