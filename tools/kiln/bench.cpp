// kiln bench: how fast programs run fused, how fast operation by operation, and what the machine allows.
#include "bench_report.h"
#include "bench_row.h"
#include "commands.h"
#include "workload.h"

#include <kiln/config.h>
#include <kiln/error.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <regex>
#include <string>
#include <vector>

namespace kiln::tool {
namespace {

struct Options {
  bool list = false, no_first = false;
  std::string filter = ".*", device = "cpu", json, svg, first;
  std::vector<std::string> modes = {"fused", "eager"};
  int threads = 0;
};

std::vector<Workload> selected(const Options& o) {
  std::vector<Workload> out;
  try {
    const std::regex filter(o.filter);
    for (Workload& w : all_workloads())
      if (std::regex_search(w.name, filter)) out.push_back(std::move(w));
  } catch (const std::regex_error&) {
    throw UserError("[bench] --filter " + o.filter + " is not a regular expression");
  }
  if (out.empty()) throw UserError("[bench] no workload matches " + o.filter + "; see kiln bench --list");
  return out;
}

void write(const std::string& file, const std::string& text) {
  std::ofstream out(file);
  out << text;
  if (!out.flush()) throw UserError("[bench] cannot write " + file);
}

void run_first_of(const std::string& name) {
  for (const Workload& w : all_workloads())
    if (w.name == name) return run_first(w);
  throw UserError("[bench] no workload " + name);
}

void run(const Options& o) {
  if (o.device != "cpu") throw UserError("[bench] --device " + o.device + ": this build has only cpu");
  Config c = config();
  if (o.threads > 0) c.num_threads = o.threads;
  configure(c);
  if (!o.first.empty()) return run_first_of(o.first);
  const std::vector<Workload> workloads = selected(o);
  if (o.list) {
    for (const Workload& w : workloads) std::printf("%s\n", w.name.c_str());
    return;
  }
  cpu::Ceilings ceilings = cpu::ceilings();
  std::printf("%s\n\n%s\n", machine_line(ceilings).c_str(), table_header().c_str());
  std::vector<Row> rows;
  for (const Workload& w : workloads) {
    std::vector<Row> these;
    for (const std::string& mode : o.modes) {
      these.push_back(measure(w, mode));
      if (mode != "eager" && !o.no_first) measure_first(w, these.back());
    }
    if (these.front().bytes >= kMemoryBound || w.floor == Workload::Floor::Flops) cpu::refine(ceilings);
    for (Row& row : these) set_floor(row, w, ceilings);
    std::printf("%s\n", table_line(by_workload(these).front()).c_str());
    std::fflush(stdout);
    rows.insert(rows.end(), these.begin(), these.end());
  }
  std::printf("\nbest rates seen: %s\n", rates_line(ceilings).c_str());
  std::printf(
      "\nfloor: least traffic over the measured copy bandwidth (sum_sq: read bandwidth; linear: flops over "
      "the FMA rate);\n"
      "spread: (max - min) / median; cold, disk: first evaluation of a new process without and with the disk "
      "cache;\n"
      "host: record, evaluate and free the same operations on a few elements.\n");
  if (!o.json.empty()) write(o.json, json_text(rows, ceilings));
  if (!o.svg.empty()) write(o.svg, svg_text(rows, ceilings));
  const auto wrong = std::count_if(rows.begin(), rows.end(), [](const Row& r) { return !r.right(); });
  if (wrong)
    throw Error("[bench] " + std::to_string(wrong) +
                " results differ from float64 by more than their tolerance");
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* command = app.add_subcommand("bench", "Measure fused against eager against the floor");
  auto o = std::make_shared<Options>();
  command->add_flag("--list", o->list, "List the workloads");
  command->add_option("--filter", o->filter, "Regular expression over the names");
  command->add_option("--device", o->device, "cpu");
  command->add_option("--modes", o->modes, "fused, eager, vm: any of them (default: fused,eager)")
      ->delimiter(',')
      ->check(CLI::IsMember({"fused", "eager", "vm"}));
  command->add_option("--threads", o->threads, "Threads (default: all)");
  command->add_option("--json", o->json, "Write the rows to a file");
  command->add_option("--svg", o->svg, "Write a picture to a file");
  command->add_flag("--no-first", o->no_first, "Skip the first evaluations in new processes");
  command->add_option("--first", o->first)->group("");  // the new process
  command->callback([o] { run(*o); });
}

}  // namespace kiln::tool
