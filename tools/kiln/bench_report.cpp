#include "bench_report.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace kiln::tool {
namespace {

[[gnu::format(printf, 1, 2)]] std::string format(const char* text, ...) {
  char out[512];
  va_list args;
  va_start(args, text);
  std::vsnprintf(out, sizeof out, text, args);
  va_end(args);
  return out;
}

/// Three figures, in milliseconds.
std::string ms(double value) {
  if (value <= 0) return "-";
  return format(value < 0.01 ? "%.5f" : value < 1 ? "%.4f" : value < 100 ? "%.2f" : "%.0f", value);
}

std::string optional_ms(const std::optional<double>& value) { return value ? ms(*value) : "-"; }

/// With a unit that suits it.
std::string duration(double value_ms) {
  return value_ms < 1 ? format("%.3g µs", value_ms * 1e3) : format("%.3g ms", value_ms);
}

nlohmann::ordered_json to_json(const Row& r) {
  nlohmann::ordered_json out = {
      {"workload", r.workload},   {"device", r.device}, {"dtype", r.dtype},   {"mode", r.mode},
      {"median_ms", r.median_ms}, {"min_ms", r.min_ms}, {"max_ms", r.max_ms}, {"runs", r.runs}};
  out["floor_ms"] = r.floor_ms > 0 ? nlohmann::ordered_json(r.floor_ms) : nullptr;
  out["gbps"] = r.gbps;
  out["kernels"] = r.kernels;
  out["nodes"] = r.nodes;
  out["cold_ms"] = r.cold_ms ? nlohmann::ordered_json(*r.cold_ms) : nullptr;
  out["disk_ms"] = r.disk_ms ? nlohmann::ordered_json(*r.disk_ms) : nullptr;
  out["host_us"] = r.host_us;
  out["max_err"] = r.max_err;
  out["tolerance"] = r.tolerance;
  out["right"] = r.right();
  return out;
}

constexpr int kWidth = 940, kLeft = 250, kBar = 520, kGroup = 40, kTop = 76;

std::string escaped(const std::string& plain) {
  std::string out;
  for (const char c : plain) out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : std::string(1, c);
  return out;
}

std::string text(int x, int y, const char* style, const std::string& content) {
  return format("<text x=\"%d\" y=\"%d\" class=\"%s\">", x, y, style) + content + "</text>\n";
}

std::string swatch(int x, const char* fill) {
  return format("<rect x=\"%d\" y=\"54\" width=\"12\" height=\"10\" rx=\"2\" fill=\"%s\"/>\n", x, fill);
}

std::string bar(double y, double width, const char* fill, const std::string& text) {
  return format("<rect x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"13\" rx=\"2\" fill=\"%s\"/>\n", kLeft, y,
                std::max(width, 1.0), fill) +
         format("<text x=\"%.1f\" y=\"%.1f\" class=\"value\">", kLeft + std::max(width, 1.0) + 6, y + 10.5) +
         text + "</text>\n";
}

}  // namespace

std::vector<Measured> by_workload(const std::vector<Row>& rows) {
  std::vector<Measured> out;
  std::string last;
  for (const Row& r : rows) {
    if (out.empty() || r.workload != last) out.emplace_back();
    last = r.workload;
    (r.mode == "eager" ? out.back().eager : r.mode == "vm" ? out.back().vm : out.back().fused) = &r;
  }
  return out;
}

std::string table_header() {
  return format("%-31s %9s %9s %9s %9s %7s %6s %7s %5s %8s %8s %8s %8s", "workload", "floor ms", "fused ms",
                "spread", "eager ms", "speedup", "floor%", "GB/s", "kern", "cold ms", "disk ms", "host us",
                "max err");
}

std::string table_line(const Measured& m) {
  const Row& r = m.fused ? *m.fused : m.eager ? *m.eager : *m.vm;
  const std::string spread = format("%.0f%%", 100 * (r.max_ms - r.min_ms) / r.median_ms);
  std::string out =
      format("%-31s %9s %9s %9s %9s %7s %6s %7.1f %5llu %8s %8s %8.2f %8.1e", r.workload.c_str(),
             ms(r.floor_ms).c_str(), m.fused ? ms(m.fused->median_ms).c_str() : "-", spread.c_str(),
             m.eager ? ms(m.eager->median_ms).c_str() : "-",
             m.fused && m.eager ? format("%.2fx", m.eager->median_ms / m.fused->median_ms).c_str() : "-",
             r.floor_ms > 0 ? format("%.0f", 100 * r.floor_ms / r.median_ms).c_str() : "-", r.gbps,
             static_cast<unsigned long long>(r.kernels), optional_ms(r.cold_ms).c_str(),
             optional_ms(r.disk_ms).c_str(), r.host_us, r.max_err);
  for (const Row* row : {m.fused, m.eager, m.vm})
    if (row && !row->right()) out += "  WRONG (" + row->mode + ")";
  if (r.disk_compiles)
    out += format("  (%llu compiled in spite of the disk cache)",
                  static_cast<unsigned long long>(r.disk_compiles));
  if (m.vm)
    out += format("\n  vm: %s ms, first evaluation %s ms, %.1f GB/s", ms(m.vm->median_ms).c_str(),
                  optional_ms(m.vm->cold_ms).c_str(), m.vm->gbps);
  if (!r.remark.empty()) out += "\n  " + r.remark;
  return out;
}

std::string json_text(const std::vector<Row>& rows, const BenchDevice& device) {
  nlohmann::ordered_json out;
  out["version"] = KILN_VERSION;
  out["machine"] = device.facts();
  out["rows"] = nlohmann::ordered_json::array();
  for (const Row& r : rows) out["rows"].push_back(to_json(r));
  return out.dump(2) + "\n";
}

/// A group of bars a workload, each group scaled to its slower bar; the floor is a line across both.
std::string svg_text(const std::vector<Row>& rows, const BenchDevice& device) {
  const std::vector<Measured> groups = by_workload(rows);
  const int height = kTop + static_cast<int>(groups.size()) * kGroup + 20;
  std::string out =
      format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\">\n",
             kWidth, height, kWidth, height);
  out +=
      "<style>text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:#222}"
      ".title{font-size:17px;font-weight:600}.sub{font-size:11.5px;fill:#666}.name{font-size:12px}"
      ".value{font-size:10.5px;fill:#444}.up{font-size:13px;font-weight:600;fill:#b3470f}</style>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
  out += text(16, 26, "title", "Fused against eager, and the floor");
  out += text(16, 44, "sub", escaped(device.title() + "; " + device.rates()));
  out += swatch(16, "#b9c0c9") + text(32, 63, "sub", "eager: one kernel an operation");
  out += swatch(226, "#e8702a") + text(242, 63, "sub", "fused");
  out +=
      "<line x1=\"296\" x2=\"296\" y1=\"52\" y2=\"66\" stroke=\"#1d4f91\" stroke-width=\"2.5\"/>\n" +
      text(304, 63, "sub",
           "floor: the least traffic (or arithmetic) at the measured rate · each workload has its own scale");
  double y = kTop;
  for (const Measured& m : groups) {
    if (!m.fused && !m.eager) continue;
    const double longest = std::max(m.eager ? m.eager->median_ms : 0, m.fused ? m.fused->median_ms : 0);
    const Row& row = m.fused ? *m.fused : *m.eager;
    out += format("<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" class=\"name\">%s</text>\n", kLeft - 10,
                  y + 18, row.workload.c_str());
    if (m.eager) out += bar(y, kBar * m.eager->median_ms / longest, "#b9c0c9", duration(m.eager->median_ms));
    if (m.fused)
      out += bar(y + 15, kBar * m.fused->median_ms / longest, "#e8702a", duration(m.fused->median_ms));
    if (m.fused && m.fused->floor_ms > 0) {
      const double x = kLeft + kBar * m.fused->floor_ms / longest;
      out += format(
          "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#1d4f91\" stroke-width=\"2.5\"/>\n",
          x, x, y - 2, y + 30);
    }
    if (m.eager && m.fused)
      out += format("<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" class=\"up\">%.1f×</text>\n", kWidth - 16,
                    y + 18, m.eager->median_ms / m.fused->median_ms);
    y += kGroup;
  }
  return out + "</svg>\n";
}

}  // namespace kiln::tool
