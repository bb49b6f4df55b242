// kiln bench: how fast programs run fused, how fast operation by operation, and what the machine allows.
#include "bench_random.h"
#include "bench_report.h"
#include "bench_row.h"
#include "bench_shapes.h"
#include "commands.h"
#include "inspect/compile_budget.h"
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
  bool list = false, no_first = false, few = false;
  std::string filter = ".*", device = "cpu", json, svg, first;
  std::vector<std::string> modes = {"fused", "eager"};
  int threads = 0, shapes = 0;
  RandomOptions random;
};

std::vector<Workload> selected(const Options& o, std::vector<Workload> from) {
  try {
    const std::regex filter(o.filter);
    std::erase_if(from, [&](const Workload& w) { return !std::regex_search(w.name, filter); });
  } catch (const std::regex_error&) {
    throw UserError("[bench] --filter " + o.filter + " is not a regular expression");
  }
  if (from.empty()) throw UserError("[bench] no workload matches " + o.filter + "; see kiln bench --list");
  return from;
}

/// Before a long run: whether its results can be written. Leaves what the file holds.
void require_writable(const std::string& file) {
  if (!file.empty() && !std::ofstream(file, std::ios::app)) throw UserError("[bench] cannot write " + file);
}

void write(const std::string& file, const std::string& text) {
  std::ofstream out(file);
  out << text;
  if (!out.flush()) throw UserError("[bench] cannot write " + file);
}

void run_first_of(const std::string& name) {
  for (const Workload& w : cpu_workloads())
    if (w.name == name) return run_first(w);
  throw UserError("[bench] no workload " + name);
}

/// Both lists: every program must be right on every device.
void check_few_elements(const Options& o) {
  std::vector<Workload> all = cpu_workloads();
  for (Workload& w : gpu_workloads())
    if (std::none_of(all.begin(), all.end(), [&](const Workload& v) { return v.name == w.name; }))
      all.push_back(std::move(w));
  int wrong = 0;
  for (const Workload& w : selected(o, std::move(all)))
    for (const std::string& mode : o.modes) {
      const double error = few_elements_error(w, mode);
      wrong += !(error <= w.tolerance);
      std::printf("%-40s %-6s %8.1e%s\n", w.name.c_str(), mode.c_str(), error,
                  error <= w.tolerance ? "" : "  WRONG");
    }
  if (wrong)
    throw Error("[bench] " + std::to_string(wrong) +
                " results differ from float64 by more than their tolerance");
}

bool is_gpu(const Options& o) { return o.device != "cpu"; }

/// Exit code 2, with the reason, when the device cannot be used.
std::unique_ptr<BenchDevice> open_device(const Options& o) {
  if (!is_gpu(o)) return cpu_bench();
  try {
    return gpu_bench(o.device.size() > 5 ? std::stoi(o.device.substr(5)) : 0);
  } catch (const Error& e) {
    std::fprintf(stderr, "kiln: [bench] --device %s: %s\n", o.device.c_str(), e.what());
    throw CLI::RuntimeError(2);
  }
}

void run_random(const Options& o) {
  RandomOptions random = o.random;
  random.list = o.list;
  random.json = o.json;
  validate(random);
  if (random.list) return list_random(random);
  if (random.check) return check_random(random);
  require_writable(random.json);
  bench_random(*open_device(o), random);
}

/// The rows of one workload, in the table at once.
std::vector<Row> bench_one(const Workload& w, const Options& o, BenchDevice& device) {
  const Program program = made(w, false);
  std::vector<Row> rows;
  for (const std::string& mode : o.modes)
    rows.push_back(measure(w, program, mode, mode != "eager" && !o.no_first, device));
  std::printf("%s\n", table_line(by_workload(rows).front()).c_str());
  std::fflush(stdout);
  return rows;
}

void run(const Options& o) {
  engine::mute_compile_budget(true);  // its programs are many, and forced by one line
  if (is_gpu(o) && std::ranges::find(o.modes, "vm") != o.modes.end())
    throw UserError("[bench] --modes vm: the vm runs kernels of the CPU, not of " + o.device);
  Config c = config();
  c.device = o.device;
  if (o.threads > 0) c.num_threads = o.threads;
  if (!o.first.empty()) return configure(c), run_first_of(o.first);
  if (o.random.count > 0 || o.random.only >= 0) return configure(c), run_random(o);
  if (o.list) {
    for (const Workload& w : selected(o, is_gpu(o) ? gpu_workloads() : cpu_workloads()))
      std::printf("%s\n", w.name.c_str());
    return;
  }
  require_writable(o.json);
  require_writable(o.svg);
  const std::unique_ptr<BenchDevice> device = (configure(c), open_device(o));
  if (o.few) return check_few_elements(o);
  if (o.shapes > 0) return bench_shapes(*device, o.shapes);
  const std::vector<Workload> workloads = selected(o, device->workloads());
  std::printf("%s; %s\n\n%s\n", device->title().c_str(), device->rates().c_str(), table_header().c_str());
  std::fflush(stdout);
  std::vector<Row> rows;
  int failed = 0;
  for (const Workload& w : workloads) {
    if (const std::string why = device->refusal(w); !why.empty()) {
      std::printf("%-31s skipped: %s\n", w.name.c_str(), why.c_str());
      continue;
    }
    try {
      for (Row& row : bench_one(w, o, *device)) rows.push_back(std::move(row));
    } catch (const Error& e) {  // the others may still say something
      ++failed;
      std::printf("%-31s FAILED: %s\n", w.name.c_str(), e.what());
    }
  }
  std::printf("\nrates: %s\n", device->rates().c_str());
  std::printf(
      "\n%s\nspread: (max - min) / median;\nhost: record, evaluate and free the same operations on a few "
      "elements.\n",
      device->legend().c_str());
  if (!o.json.empty()) write(o.json, json_text(rows, *device));
  if (!o.svg.empty()) write(o.svg, svg_text(rows, *device));
  const auto wrong = std::count_if(rows.begin(), rows.end(), [](const Row& r) { return !r.right(); });
  if (failed) throw Error("[bench] " + std::to_string(failed) + " workloads failed");
  if (wrong)
    throw Error("[bench] " + std::to_string(wrong) +
                " results differ from float64 by more than their tolerance");
}

/// "2^k" as a number; other texts as they are.
std::string power_of_two(const std::string& text) {
  static const std::regex power("2\\^([0-9]{1,2})");
  std::smatch match;
  if (!std::regex_match(text, match, power)) return text;
  return std::to_string(std::int64_t{1} << std::min(std::stoi(match[1]), 62));
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* command = app.add_subcommand("bench", "Measure fused against eager against the floor");
  auto o = std::make_shared<Options>();
  command->add_flag("--list", o->list, "List the workloads");
  command->add_option("--filter", o->filter, "Regular expression over the names");
  command->add_option("--device", o->device, "cpu, cuda or cuda:N (default: cpu)")
      ->check([](const std::string& text) {
        return std::regex_match(text, std::regex("cpu|cuda(:[0-9]{1,3})?"))
                   ? std::string()
                   : "--device " + text + ": cpu, cuda or cuda:N";
      });
  command->add_option("--modes", o->modes, "fused, eager, vm: any of them (default: fused,eager)")
      ->delimiter(',')
      ->check(CLI::IsMember({"fused", "eager", "vm"}));
  command->add_option("--threads", o->threads, "Threads (default, or 0: all)")->check(CLI::NonNegativeNumber);
  command->add_option("--json", o->json, "Write the rows to a file");
  command->add_option("--svg", o->svg, "Write a picture to a file");
  command->add_flag("--few", o->few, "Only check every workload's results, on a few elements");
  command
      ->add_option("--shapes", o->shapes,
                   "Instead: so many random shapes, with kernels for all shapes and for each")
      ->check(CLI::PositiveNumber);
  command->add_option("--random", o->random.count, "Instead: so many random programs")
      ->check(CLI::PositiveNumber);
  command->add_option("--seed", o->random.seed, "Of the random programs (default: 1)");
  command
      ->add_option("--elements", o->random.elements,
                   "Of each random program: a number, or 2^k (default: 2^23, on a GPU 2^26)")
      ->transform(power_of_two);
  command->add_option("--family", o->random.family, "Only random programs of one family");
  command->add_option("--only", o->random.only, "Only the random program with this index")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--check", o->random.check, "Compare the random programs, small, with the oracle");
  command->add_flag(
      "--adapt", o->random.adapt,
      "Settle each random program by adaptive mode, and compare it with the program as planned");
  command->add_flag(
      "--apart", o->random.apart,
      "Time each random program by turns with the library's products and separate kernels, too");
  command->add_flag("--no-first", o->no_first, "Skip the first evaluations");
  command->add_option("--first", o->first)->group("");  // the new process
  command->callback([o] { run(*o); });
}

}  // namespace kiln::tool
