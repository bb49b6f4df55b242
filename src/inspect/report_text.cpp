// Reports for people: the table of KILN_EXPLAIN=1, and the figures that are computed from a report.
#include "support/check.h"

#include <kiln/error.h>
#include <kiln/fusion_report.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace kiln {
namespace {

std::string shape_of(const std::vector<std::int64_t>& dims) {
  std::string out = "(";
  for (std::size_t i = 0; i < dims.size(); ++i) out += cat(i ? ", " : "", dims[i]);
  return out + (dims.size() == 1 ? ",)" : ")");
}

/// "12.3 KB": powers of 1000.
std::string size_text(std::int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; std::abs(value) >= 1000 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  char out[32];
  std::snprintf(out, sizeof out, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return out;
}

std::string time_text(double ns) {
  if (ns < 0) return "-";
  char out[32];
  if (ns < 1e6)
    std::snprintf(out, sizeof out, "%.1f us", ns * 1e-3);
  else
    std::snprintf(out, sizeof out, "%.1f ms", ns * 1e-6);
  return out;
}

std::string line_text(const std::string& file, std::uint32_t line) { return cat(file, ":", line); }

std::string describe(const FusionReport& r, std::uint32_t id) {
  const FusionReport::Node& n = r.node(id);
  return cat("%", id, " ", n.op, " ", info(n.dtype).short_name, shape_of(n.shape), " (",
             line_text(n.file, n.line), ")");
}

std::string operations_of(const FusionReport& r, const FusionReport::Region& region) {
  constexpr std::size_t kShown = 12;
  std::string out;
  for (std::size_t i = 0; i < region.nodes.size(); ++i) {
    if (i == kShown) return cat(out, " and ", region.nodes.size() - kShown, " more");
    std::string_view op = r.node(region.nodes[i]).op;
    if (op.starts_with("reduce_")) op.remove_prefix(7);
    out += cat(i ? " " : "", op);
  }
  return out;
}

std::string region_text(const FusionReport& r, std::size_t i) {
  const FusionReport::Region& region = r.regions[i];
  std::string out = cat("  ", region.library ? "library" : "kernel ", " ", i, ": ", text_of(region.kind),
                        ": ", operations_of(r, region), "\n             ", size_text(region.bytes));
  if (region.bytes > region.floor_bytes)
    out += cat(", ", size_text(region.bytes - region.floor_bytes), " above the floor");
  out += cat(", ", time_text(region.modelled_ns), " by the model, ", time_text(region.measured_ns),
             " measured\n");
  if (!region.variants.empty()) {
    char gain[32];
    std::snprintf(gain, sizeof gain, "%.2f", region.gain);
    std::string what;
    for (const FusionVariant v : region.variants) what.append(what.empty() ? "" : ", ").append(text_of(v));
    out += cat("             ", what, ": measured ", gain, " times as fast\n");
  }
  for (const FusionReport::Kernel& k : region.kernels) {
    out += cat("             ", k.name, ": ", k.schedule, ": ", k.why, "; ", k.verdict);
    if (k.compile_ns >= 0) out += cat(" in ", time_text(static_cast<double>(k.compile_ns)));
    if (k.registers >= 0) out += cat(", ", k.registers, " registers, ", k.spilled_bytes, " bytes spilled");
    out += "\n";
    if (!k.field.empty())
      out += cat("             compiled anew: ", k.field, ": `", k.now, "`, was `", k.was, "`\n");
  }
  return out;
}

std::string hint_text(FusionHint hint) {
  return hint == FusionHint::Nothing ? std::string() : cat("\n             helps: ", text_of(hint));
}

}  // namespace

std::string FusionReport::Difference::text() const {
  std::string out = op.empty() ? "" : cat(op, " at ", line_text(file, line), ": ");
  out += field;
  return now.empty() && was.empty() ? out : cat(out, " ", now, ", was ", was);
}

double FusionReport::reduction_percent() const {
  if (before.kernels == 0) return 0;
  return 100.0 * (before.kernels - after.kernels - after.library_calls) / before.kernels;
}

const FusionReport::Node& FusionReport::node(std::uint32_t id) const {
  const auto found = std::lower_bound(nodes.begin(), nodes.end(), id,
                                      [](const Node& n, std::uint32_t wanted) { return n.id < wanted; });
  if (found == nodes.end() || found->id != id) throw UserError(cat("[fusion] the report has no node ", id));
  return *found;
}

std::string to_text(const FusionReport& r) {
  char percent[32];
  const double less = r.reduction_percent();  // below 0 where operands are copied for a library
  std::snprintf(percent, sizeof percent, "%.0f %% %s", std::abs(less), less < 0 ? "more" : "fewer");
  std::string out = cat("[kiln] plan ", r.plan, " on ", r.device, ": ", r.before.kernels,
                        r.before.kernels == 1 ? " operation in " : " operations in ", r.after.kernels,
                        r.after.kernels == 1 ? " kernel" : " kernels", " and ", r.after.library_calls,
                        r.after.library_calls == 1 ? " library call (" : " library calls (", percent, ")\n");
  if (!r.trigger.call.empty())
    out += cat("  forced by: ", r.trigger.call, " at ", line_text(r.trigger.file, r.trigger.line),
               r.runs > 1 ? cat("; the plan has run ", r.runs, " times") : std::string(), "\n");
  if (const std::string why = r.difference.text(); !why.empty()) out += cat("  planned: ", why, "\n");
  out += cat("  traffic: ", size_text(r.before.bytes), " unfused, ", size_text(r.after.bytes), " now, ",
             size_text(r.bytes_saved()), " saved; buffers: ", r.before.buffers, " unfused, ", r.after.buffers,
             " now\n");
  if (r.after.again > 0)
    out += cat("  memory: ", size_text(r.after.peak_bytes), " at most; ", r.after.again,
               " kernels and calls run once more for the memory budget\n");
  for (std::size_t i = 0; i < r.regions.size(); ++i) out += region_text(r, i);
  for (const FusionReport::Boundary& b : r.boundaries)
    out += cat("  boundary: ", describe(r, b.from), "\n         -> ", describe(r, b.to), ", ",
               size_text(b.bytes), "\n             ", b.text(), hint_text(b.hint()), "\n");
  for (const FusionReport::NearMiss& m : r.near_misses) {
    out += cat("  near miss: ", text_of(m.pattern), ": ", describe(r, m.nodes.front()), " to ",
               describe(r, m.nodes.back()), "\n             ", m.text(), hint_text(m.hint()), "\n");
  }
  for (const FusionReport::Stored& s : r.stored)
    out += cat("  stored: ", describe(r, s.node), ": ", text_of(s.why), "\n");
  for (const FusionReport& loop : r.loops)
    out += cat("  in the loop", loop.runs > 0 ? cat(", ", loop.runs, " times") : std::string(), ":\n",
               to_text(loop));
  return out;
}

}  // namespace kiln
