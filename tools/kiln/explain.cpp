// `kiln explain` and `kiln diff`: what KILN_EXPLAIN wrote, as a table, for one kernel, or compared with
// another run.
#include "commands.h"
#include "inspect/report_json.h"
#include "inspect/report_page.h"

#include <kiln/error.h>
#include <kiln/fusion_report.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace kiln::tool {
namespace {

/// The plans of a file, with the times and verdicts of their latest measured runs. The last line of a program
/// that was killed may be cut: it is left out.
std::vector<FusionReport> read_reports(const std::string& file) {
  std::ifstream in(file);
  if (!in || std::filesystem::is_directory(file)) throw UserError("[explain] cannot read " + file);
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
      const std::string where = file + ":" + std::to_string(number) + ": ";
      if (!in.eof() || out.empty()) throw UserError("[explain] " + where + e.what());
      std::fprintf(stderr, "kiln: [explain] %sthe last line is cut, and left out\n", where.c_str());
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

/// `r`: the report that has the region; `plan`: the same, or that of the plan whose loop runs it.
void why_region(const FusionReport& plan, const FusionReport& r, const FusionReport::Region& region,
                const FusionReport::Kernel& kernel) {
  std::printf("%s (%s)\n  %splan %llu, forced by %s at %s:%u\n  schedule %s: %s\n", kernel.name.c_str(),
              std::string(text_of(region.kind)).c_str(), &plan == &r ? "" : "in a loop of ",
              static_cast<unsigned long long>(plan.plan), plan.trigger.call.c_str(),
              plan.trigger.file.c_str(), plan.trigger.line, kernel.schedule.c_str(), kernel.why.c_str());
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

/// Explains the kernels of a plan, and of its loops, that have the name; returns how many have.
int explain_kernels(const FusionReport& plan, const FusionReport& r, const std::string& wanted) {
  int found = 0;
  for (const FusionReport::Region& region : r.regions)
    for (const FusionReport::Kernel& kernel : region.kernels)
      if (is_named(kernel, wanted)) why_region(plan, r, region, kernel), ++found;
  for (const FusionReport& loop : r.loops) found += explain_kernels(plan, loop, wanted);
  return found;
}

void add_names(const FusionReport& r, std::set<std::string>& names) {
  for (const FusionReport::Region& region : r.regions)
    for (const FusionReport::Kernel& kernel : region.kernels) names.insert(kernel.name);
  for (const FusionReport& loop : r.loops) add_names(loop, names);
}

void explain_kernel(const std::vector<FusionReport>& reports, const std::string& wanted) {
  int found = 0;
  for (const FusionReport& r : reports) found += explain_kernels(r, r, wanted);
  if (found > 0) return;
  std::set<std::string> names;
  for (const FusionReport& r : reports) add_names(r, names);
  std::string list;
  for (const std::string& name : names) list += "\n  " + name;
  throw UserError("[explain] no kernel's name or key begins with " + wanted +
                  (list.empty() ? "; the file has no kernels" : "; the kernels are" + list));
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
    out.push_back("boundary " + line_of(r, b.from) + " -> " + line_of(r, b.to) + ": " + b.text());
  return out;
}

/// Equal kernels have equal names.
std::vector<std::string> kernels_of(const FusionReport& r) {
  std::vector<std::string> out;
  for (const FusionReport::Region& region : r.regions)
    for (const FusionReport::Kernel& kernel : region.kernels)
      out.push_back("kernel " + kernel.name + ": " + kernel.schedule);
  return out;
}

/// What only one of two lists has.
std::string changes(std::vector<std::string> was, std::vector<std::string> now) {
  std::ranges::sort(was);
  std::ranges::sort(now);
  std::vector<std::string> gone, come;
  std::ranges::set_difference(was, now, std::back_inserter(gone));
  std::ranges::set_difference(now, was, std::back_inserter(come));
  std::string out;
  for (const std::string& text : gone) out += "  - " + text + "\n";
  for (const std::string& text : come) out += "  + " + text + "\n";
  return out;
}

std::string change(const std::string& what, std::int64_t was, std::int64_t now) {
  return was == now ? "" : "  " + what + ": " + std::to_string(now) + ", was " + std::to_string(was) + "\n";
}

/// Of all regions; below 0: not all were measured.
double measured_ns(const FusionReport& r) {
  double sum = 0;
  for (const FusionReport::Region& region : r.regions) {
    if (region.measured_ns < 0) return -1;
    sum += region.measured_ns;
  }
  return sum;
}

/// What differs between two reports, by lines; empty: nothing does. Times always do, and are no difference.
std::string changes(const FusionReport& a, const FusionReport& b) {
  std::string out = change("operations", a.before.kernels, b.before.kernels) +
                    change("kernels", a.after.kernels, b.after.kernels) +
                    change("library calls", a.after.library_calls, b.after.library_calls) +
                    change("bytes", a.after.bytes, b.after.bytes);
  const auto of_kind = [](const FusionReport& r, const std::string& kind) {
    const auto found = r.by_kind.find(kind);
    return found == r.by_kind.end() ? 0 : found->second;
  };
  std::set<std::string> kinds;
  for (const FusionReport* r : {&a, &b})
    for (const auto& [kind, n] : r->by_kind) kinds.insert(kind);
  for (const std::string& kind : kinds)
    out += change("regions of kind " + kind, of_kind(a, kind), of_kind(b, kind));
  out += changes(boundaries_of(a), boundaries_of(b)) + changes(kernels_of(a), kernels_of(b)) +
         change("plans of loops", std::ssize(a.loops), std::ssize(b.loops));
  for (std::size_t i = 0; i < std::min(a.loops.size(), b.loops.size()); ++i)
    out += changes(a.loops[i], b.loops[i]);
  if (out.empty() || measured_ns(a) <= 0 || measured_ns(b) <= 0) return out;
  char times[96];
  std::snprintf(times, sizeof times, "  measured: %.1f us, was %.1f us\n", measured_ns(b) * 1e-3,
                measured_ns(a) * 1e-3);
  return out + times;
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
      const std::string text = changes(*old->second, *report);
      if (text.empty()) continue;
      std::printf("%s\n%s", line.first.c_str(), text.c_str());
      ++changed;
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
  CLI::Option* const html =
      command->add_option("--html", *page, "Write a page instead, one file without network");
  command->add_option("--why", *why, "One kernel: the beginning of its name or key")->excludes(html);
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
