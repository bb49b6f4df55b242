#include "random_report.h"

#include "inspect/report_json.h"

#include <kiln/fusion_report.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

namespace kiln::tool {
namespace {

template <class... Args>
std::string format(const char* pattern, Args... args) {
  char text[256];
  std::snprintf(text, sizeof text, pattern, args...);
  return text;
}

/// The value that a share of the sorted list does not exceed.
double quantile(const std::vector<double>& sorted, double share) {
  const auto n = static_cast<double>(sorted.size());
  return sorted[static_cast<std::size_t>(std::clamp(std::ceil(share * n) - 1, 0.0, n - 1))];
}

std::string distribution(const std::string& name, std::vector<double> ratios) {
  std::sort(ratios.begin(), ratios.end());
  return format("%-16s %5zu %8.2f %8.2f %8.2f %8.2f\n", name.c_str(), ratios.size(), quantile(ratios, 0.5),
                quantile(ratios, 0.9), quantile(ratios, 0.99), ratios.back());
}

nlohmann::ordered_json summary(std::vector<double> ratios) {
  if (ratios.empty()) return nullptr;
  std::sort(ratios.begin(), ratios.end());
  return {{"programs", ratios.size()},
          {"median", quantile(ratios, 0.5)},
          {"p90", quantile(ratios, 0.9)},
          {"p99", quantile(ratios, 0.99)},
          {"worst", ratios.back()}};
}

struct Ratios {
  std::vector<double> floor, copy, apart;
  std::map<std::string, std::vector<double>> by_family;
};
Ratios ratios_of(const std::vector<RandomRow>& rows) {
  Ratios out;
  for (const RandomRow& r : rows) {
    if (!r.failure.empty()) continue;
    out.floor.push_back(r.ratio());
    // A copy says nothing about a program that is bound by arithmetic.
    if (r.program.instructions + r.program.products == 0) out.copy.push_back(r.timing.median / r.copy_ms);
    if (r.apart_ms > 0) out.apart.push_back(r.together_ms / r.apart_ms);
    out.by_family[r.program.family].push_back(r.ratio());
  }
  return out;
}

std::string indented(const std::string& text) {
  std::string out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) out.append("    ").append(line).append("\n");
  return out;
}

/// Kernels and boundaries of the file that KILN_EXPLAIN wrote: one plan a line.
std::string plans_of(const std::string& path) {
  std::ifstream in(path);
  std::string out;
  for (std::string line; std::getline(in, line);) {
    if (engine::is_run_json(line)) continue;
    const FusionReport plan = fusion_report_from_json(line);
    for (const FusionReport::Region& region : plan.regions) {
      out += "kernel:";
      for (const std::uint32_t id : region.nodes) out.append(" ").append(plan.node(id).op);
      out += "\n";
    }
    for (const FusionReport::Boundary& b : plan.boundaries)
      out += "boundary: " + plan.node(b.from).op + " -> " + plan.node(b.to).op + ": " + b.text() + "\n";
  }
  return out;
}

/// The programs that take longest beside products and maps apart.
std::string slowest_beside_apart(const std::vector<RandomRow>& rows) {
  std::vector<const RandomRow*> timed;
  for (const RandomRow& r : rows)
    if (r.apart_ms > 0) timed.push_back(&r);
  std::ranges::sort(timed, std::ranges::greater{},
                    [](const RandomRow* r) { return r->together_ms / r->apart_ms; });
  if (timed.size() > kExplained) timed.resize(kExplained);
  std::string out = "\nslowest beside products and maps apart\n";
  for (const RandomRow* r : timed)
    out += format("# %d %s: %.4f ms, apart %.4f ms, ratio %.2f\n", r->program.index,
                  r->program.family.c_str(), r->together_ms, r->apart_ms, r->together_ms / r->apart_ms) +
           indented(to_text(r->program));
  return out;
}

}  // namespace

std::vector<RandomRow*> worst_of(std::vector<RandomRow>& rows, int count) {
  std::vector<RandomRow*> out;
  for (RandomRow& r : rows)
    if (r.failure.empty()) out.push_back(&r);
  std::ranges::sort(out, [](const RandomRow* a, const RandomRow* b) { return a->ratio() > b->ratio(); });
  if (static_cast<int>(out.size()) > count) out.resize(static_cast<std::size_t>(count));
  return out;
}

std::string random_text(std::vector<RandomRow>& rows, const BenchDevice& device, std::uint64_t seed,
                        std::int64_t elements) {
  std::string out = format("%zu random programs, seed %llu, %lld elements; ", rows.size(),
                           static_cast<unsigned long long>(seed), static_cast<long long>(elements));
  out += device.title() + "\n\n";
  for (const RandomRow* r : worst_of(rows, kExplained)) {
    out +=
        format("# %d %s: %.3f ms, floor %.3f ms, ratio %.2f, copy %.3f ms, kernels %llu%s\n",
               r->program.index, r->program.family.c_str(), r->timing.median, r->floor_ms, r->ratio(),
               r->copy_ms, static_cast<unsigned long long>(r->kernels), r->fell_back ? ", NOT COMPILED" : "");
    out += indented(to_text(r->program)) + indented(r->explanation.substr(0, r->explanation.find("\n\n"))) +
           "\n";
  }
  for (const RandomRow& r : rows)
    if (!r.failure.empty())
      out += format("# %d %s FAILED: ", r.program.index, r.program.family.c_str()) + r.failure + "\n" +
             indented(to_text(r.program));
  const Ratios ratios = ratios_of(rows);
  if (ratios.floor.empty()) return out;
  out += format("%-16s %5s %8s %8s %8s %8s\n", "time / floor", "count", "median", "p90", "p99", "worst");
  for (const auto& [family, list] : ratios.by_family) out += distribution(family, list);
  out += distribution("all", ratios.floor);
  if (!ratios.copy.empty()) out += distribution("all, over a copy", ratios.copy);
  if (!ratios.apart.empty())
    out += distribution("all, over apart", ratios.apart) + slowest_beside_apart(rows);
  return out;
}

std::string random_json(const std::vector<RandomRow>& rows, const BenchDevice& device, std::uint64_t seed,
                        std::int64_t elements) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array(), families;
  for (const RandomRow& r : rows) {
    nlohmann::ordered_json row = {{"index", r.program.index}, {"family", r.program.family}};
    if (r.failure.empty()) {
      row.update({{"median_ms", r.timing.median},
                  {"min_ms", r.timing.min},
                  {"max_ms", r.timing.max},
                  {"runs", r.timing.samples},
                  {"copy_ms", r.copy_ms},
                  {"floor_ms", r.floor_ms},
                  {"ratio", r.ratio()},
                  {"footprint_bytes", r.program.input_bytes + r.program.output_bytes},
                  {"least_bytes", r.least_bytes},
                  {"instructions", r.program.instructions},
                  {"extremes", r.program.extremes},
                  {"products", r.program.products},
                  {"functions", r.program.functions},
                  {"doubles", r.program.doubles},
                  {"kernels", r.kernels},
                  {"compiled", !r.fell_back}});
    } else {
      row["failure"] = r.failure;
    }
    if (r.apart_ms > 0) row.update({{"together_ms", r.together_ms}, {"apart_ms", r.apart_ms}});
    if (r.adapted.pairs > 0)
      row["adapted"] = {{"gain", r.adapted.gain.median}, {"low", r.adapted.gain.low},
                        {"high", r.adapted.gain.high},   {"pairs", r.adapted.pairs},
                        {"tried", r.adapted.tried},      {"won", r.adapted.won},
                        {"taken", r.adapted.taken}};
    row["program"] = to_json(r.program);
    row["text"] = to_text(r.program);
    if (!r.explanation.empty()) row["explanation"] = r.explanation;
    list.push_back(std::move(row));
  }
  const Ratios ratios = ratios_of(rows);
  for (const auto& [family, values] : ratios.by_family) families[family] = summary(values);
  const nlohmann::ordered_json out = {{"seed", seed},
                                      {"elements", elements},
                                      {"device", device.name()},
                                      {"machine", device.facts()},
                                      {"over_floor", summary(ratios.floor)},
                                      {"over_copy", summary(ratios.copy)},
                                      {"over_apart", summary(ratios.apart)},
                                      {"families", families},
                                      {"programs", list}};
  return out.dump(1) + "\n";
}

void Explanation::ask(Config& config) const {
  config.explain = directory_.path() + "/plan.json";
  config.dump = directory_.path() + "/kernels";
  config.dump_stages = {"kernel"};
  config.cache = "off";
}

std::string Explanation::read() const {
  std::string out = plans_of(directory_.path() + "/plan.json");
  std::vector<std::filesystem::path> files;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(directory_.path() + "/kernels", none))
    files.push_back(entry.path());
  std::ranges::sort(files);
  for (const auto& file : files) {
    std::ifstream in(file);
    std::ostringstream text;
    text << in.rdbuf();
    out.append("\n").append(text.str());
  }
  return out;
}

}  // namespace kiln::tool
