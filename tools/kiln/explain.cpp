// `kiln explain` and `kiln diff`: what KILN_EXPLAIN wrote, as a table, for one kernel, or compared with
// another run.
#include "commands.h"
#include "inspect/report_json.h"
#include "inspect/report_page.h"

#include <kiln/error.h>
#include <kiln/fusion_report.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace kiln::tool {
namespace {

/// The plans of a file, with the times and verdicts of their latest measured runs.
std::vector<FusionReport> read_reports(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw UserError("[explain] cannot read " + file);
  std::vector<FusionReport> out;
  std::size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    try {
      if (!engine::is_run_json(line)) {
        out.push_back(fusion_report_from_json(line));
        continue;
      }
      // A file may have the plans of several processes, one after the other.
      for (std::size_t i = out.size(); i-- > 0;)
        if (engine::merge_run_json(line, out[i])) break;
    } catch (const UserError& e) {
      throw UserError("[explain] " + file + ":" + std::to_string(number) + ": " + e.what());
    }
  }
  if (out.empty()) throw UserError("[explain] " + file + " has no report");
  return out;
}

std::string line_of(const FusionReport& r, std::uint32_t node) {
  const FusionReport::Node& n = r.node(node);
  return n.op + " (" + n.file + ":" + std::to_string(n.line) + ")";
}

/// Whether a kernel is the one that was asked for: its name, the beginning of it, or of its key.
bool is_named(const FusionReport::Kernel& kernel, const std::string& wanted) {
  return kernel.name.starts_with(wanted) || kernel.key.starts_with(wanted);
}

void why_region(const FusionReport& r, const FusionReport::Region& region,
                const FusionReport::Kernel& kernel) {
  std::printf("%s (%s)\n  plan %llu, forced by %s at %s:%u\n  schedule %s: %s\n", kernel.name.c_str(),
              std::string(text_of(region.kind)).c_str(), static_cast<unsigned long long>(r.plan),
              r.trigger.call.c_str(), r.trigger.file.c_str(), r.trigger.line, kernel.schedule.c_str(),
              kernel.why.c_str());
  std::printf("  code: %s", kernel.verdict.c_str());
  if (kernel.compile_ns >= 0) std::printf(", %.1f ms", static_cast<double>(kernel.compile_ns) * 1e-6);
  std::printf("\n");
  if (!kernel.field.empty())
    std::printf("  compiled although a kernel of the same operations is there: %s\n    now %s\n    was %s\n",
                kernel.field.c_str(), kernel.now.c_str(), kernel.was.c_str());
  std::printf("  bytes %lld, floor %lld; by the model %.1f us", static_cast<long long>(region.bytes),
              static_cast<long long>(region.floor_bytes), region.modelled_ns * 1e-3);
  if (region.measured_ns >= 0) std::printf(", measured %.1f us", region.measured_ns * 1e-3);
  std::printf("\n  operations:\n");
  for (const std::uint32_t id : region.nodes) std::printf("    %s\n", line_of(r, id).c_str());
  const auto inside = [&](std::uint32_t id) {
    return std::ranges::find(region.nodes, id) != region.nodes.end();
  };
  for (const FusionReport::Boundary& b : r.boundaries)
    if (inside(b.from) || inside(b.to))
      std::printf("  apart from %s: %s\n    helps: %s\n", line_of(r, inside(b.from) ? b.to : b.from).c_str(),
                  b.text().c_str(), std::string(text_of(b.hint())).c_str());
}

void explain_kernel(const std::vector<FusionReport>& reports, const std::string& wanted) {
  int found = 0;
  for (const FusionReport& r : reports)
    for (const FusionReport::Region& region : r.regions)
      for (const FusionReport::Kernel& kernel : region.kernels)
        if (is_named(kernel, wanted)) why_region(r, region, kernel), ++found;
  if (found == 0) throw UserError("[explain] no kernel's name or key begins with " + wanted);
}

void write_page(const std::vector<FusionReport>& reports, const std::string& file) {
  std::ofstream out(file);
  out << engine::page_begin();
  for (const FusionReport& r : reports) out << engine::page_plan(r);
  if (!out.flush()) throw UserError("[explain] cannot write to " + file);
}

// ---- diff ----

/// Plans of two runs of a program that belong together: the same line of the last operation, and the same
/// place among the plans of that line.
std::map<std::pair<std::string, int>, const FusionReport*> by_line(const std::vector<FusionReport>& reports) {
  std::map<std::pair<std::string, int>, const FusionReport*> out;
  std::map<std::string, int> seen;
  for (const FusionReport& r : reports) {
    const std::string line =
        r.nodes.empty() ? "" : r.nodes.back().file + ":" + std::to_string(r.nodes.back().line);
    out[{line, seen[line]++}] = &r;
  }
  return out;
}

std::vector<std::string> boundaries_of(const FusionReport& r) {
  std::vector<std::string> out;
  for (const FusionReport::Boundary& b : r.boundaries)
    out.push_back(line_of(r, b.from) + " -> " + line_of(r, b.to) + ": " + b.text());
  std::ranges::sort(out);
  return out;
}

void print_changed(const char* what, long long a, long long b, bool& any) {
  if (a == b) return;
  std::printf("  %s: %lld, was %lld\n", what, b, a);
  any = true;
}

bool print_difference(const std::string& line, const FusionReport& a, const FusionReport& b) {
  std::printf("%s\n", line.c_str());
  bool any = false;
  print_changed("operations", a.before.kernels, b.before.kernels, any);
  print_changed("kernels", a.after.kernels, b.after.kernels, any);
  print_changed("library calls", a.after.library_calls, b.after.library_calls, any);
  print_changed("bytes", a.after.bytes, b.after.bytes, any);
  for (const auto& [kind, n] : b.by_kind) {
    const auto before = a.by_kind.find(kind);
    print_changed(("regions of kind " + kind).c_str(), before == a.by_kind.end() ? 0 : before->second, n,
                  any);
  }
  for (const auto& [kind, n] : a.by_kind)
    if (!b.by_kind.contains(kind)) print_changed(("regions of kind " + kind).c_str(), n, 0, any);
  const std::vector<std::string> old_ones = boundaries_of(a), new_ones = boundaries_of(b);
  std::vector<std::string> gone, come;
  std::ranges::set_difference(old_ones, new_ones, std::back_inserter(gone));
  std::ranges::set_difference(new_ones, old_ones, std::back_inserter(come));
  for (const std::string& text : gone) std::printf("  - boundary %s\n", text.c_str());
  for (const std::string& text : come) std::printf("  + boundary %s\n", text.c_str());
  any = any || !gone.empty() || !come.empty();
  if (!any) std::printf("  equal\n");
  return any;
}

void print_alone(const std::string& line, const std::string& file, const FusionReport& r) {
  const auto counted = [](int n, const char* what) {
    return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
  };
  std::printf("%s\n  only in %s: %s, %s\n", line.c_str(), file.c_str(),
              counted(r.after.kernels, "kernel").c_str(),
              counted(r.after.library_calls, "library call").c_str());
}

void diff(const std::string& before, const std::string& after) {
  const std::vector<FusionReport> a = read_reports(before), b = read_reports(after);
  const auto of_a = by_line(a), of_b = by_line(b);
  int changed = 0;
  std::size_t plans = of_b.size();
  for (const auto& [line, report] : of_b) {
    const auto old = of_a.find(line);
    if (old == of_a.end()) {
      print_alone(line.first, after, *report);
      ++changed;
    } else {
      changed += print_difference(line.first, *old->second, *report);
    }
  }
  for (const auto& [line, report] : of_a)
    if (!of_b.contains(line)) {
      ++plans;
      print_alone(line.first, before, *report);
      ++changed;
    }
  std::printf("%d of %zu plans differ\n", changed, plans);
}

}  // namespace

void add_explain(CLI::App& app) {
  CLI::App* command = app.add_subcommand("explain", "Show a file that KILN_EXPLAIN=FILE.json wrote");
  auto file = std::make_shared<std::string>(), why = std::make_shared<std::string>();
  command->add_option("file", *file, "The file")->required();
  auto page = std::make_shared<std::string>();
  command->add_option("--html", *page, "Write a page instead, one file without network");
  command->add_option("--why", *why, "One kernel: the beginning of its name or key");
  command->callback([=] {
    const std::vector<FusionReport> reports = read_reports(*file);
    if (!page->empty()) return write_page(reports, *page);
    if (!why->empty()) return explain_kernel(reports, *why);
    for (const FusionReport& r : reports) std::fputs(to_text(r).c_str(), stdout);
  });
}

void add_diff(CLI::App& app) {
  CLI::App* command = app.add_subcommand("diff", "Compare the plans of two files of KILN_EXPLAIN");
  auto a = std::make_shared<std::string>(), b = std::make_shared<std::string>();
  command->add_option("before", *a, "The file of the first run")->required();
  command->add_option("after", *b, "The file of the second run")->required();
  command->callback([=] { diff(*a, *b); });
}

}  // namespace kiln::tool
