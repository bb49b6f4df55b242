#include "bench_row.h"

#include "backend/cpu/threads.h"
#include "ir/node.h"
#include "runtime/pool.h"

#include <kiln/report.h>

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <unordered_set>

namespace kiln::tool {
namespace {

constexpr double kBudgetSeconds = 0.5;
constexpr int kLeastSamples = 7, kMostSamples = 500;
constexpr double kSampleSeconds = 100e-6;  // short programs are repeated within a sample

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Records, evaluates and frees.
void run(const Program& program) {
  const std::vector<Tensor> out = program.record();
  eval(out);
}

struct Timing {
  double median = 0, min = 0, max = 0;  // seconds
  int samples = 0;
};

Timing time(const Program& program) {
  for (int i = 0; i < 3; ++i) run(program);
  double begin = seconds();
  run(program);
  const int repeat = std::max(1, static_cast<int>(kSampleSeconds / std::max(seconds() - begin, 1e-7)));
  std::vector<double> samples;
  const double start = seconds();
  while (static_cast<int>(samples.size()) < kLeastSamples ||
         (seconds() - start < kBudgetSeconds && static_cast<int>(samples.size()) < kMostSamples)) {
    begin = seconds();
    for (int i = 0; i < repeat; ++i) run(program);
    samples.push_back((seconds() - begin) / repeat);
  }
  std::sort(samples.begin(), samples.end());
  return {samples[samples.size() / 2], samples.front(), samples.back(), static_cast<int>(samples.size())};
}

/// What a recorded trace holds, and the bytes it moves when every operation is a kernel of its own.
struct Trace {
  std::uint64_t nodes = 0;
  double eager_bytes = 0;
};

double bytes_read(const ir::Node* node) {
  std::int64_t numel = node->numel;
  while (ir::is_view(node->op) && node->op != ir::Op::pad) {
    node = node->in[0];
    numel = std::min(numel, node->numel);
  }
  const ir::OpKind kind = ir::info(node->op).kind;
  if (kind == ir::OpKind::Scalar || kind == ir::OpKind::Iota) return 0;
  return static_cast<double>(numel * size_of(node->dtype));
}

Trace trace_of(const std::vector<Tensor>& outputs) {
  Trace trace;
  std::unordered_set<const ir::Node*> seen;
  std::vector<const ir::Node*> stack;
  const auto visit = [&](const ir::Node* node) {
    if (node && seen.insert(node).second) stack.push_back(node);
  };
  for (const Tensor& t : outputs) visit(t.node());
  while (!stack.empty()) {
    const ir::Node* node = stack.back();
    stack.pop_back();
    if (node->is_leaf()) continue;
    ++trace.nodes;
    const ir::OpKind kind = ir::info(node->op).kind;
    const bool moves = kind != ir::OpKind::Scalar && kind != ir::OpKind::Iota &&
                       (kind != ir::OpKind::View || node->op == ir::Op::pad);
    if (moves) trace.eager_bytes += static_cast<double>(node->numel * size_of(node->dtype));
    for (int i = 0; i < node->n_in; ++i) {
      if (moves && node->in[i] && (i == 0 || node->in[i] != node->in[0]))
        trace.eager_bytes += bytes_read(node->in[i]);
      visit(node->in[i]);
    }
  }
  return trace;
}

/// Options for the life of a scope.
class OptionScope {
 public:
  OptionScope(Mode mode, Tier tier) : before_(config()) {
    Config c = before_;
    c.mode = mode;
    c.tier = tier;
    configure(c);
  }
  ~OptionScope() { configure(before_); }

 private:
  const Config before_;
};

/// Maps, touches and frees what the program will write, so that a first evaluation is not charged for page
/// faults.
void warm_pool(const std::vector<Tensor>& outputs) {
  std::vector<ir::Buffer*> buffers;
  for (const Tensor& t : outputs)
    buffers.push_back(runtime::allocate(static_cast<std::uint64_t>(t.numel() * size_of(t.dtype()))));
  for (ir::Buffer* b : buffers) {
    cpu::parallel_for(static_cast<std::int64_t>(b->bytes), 4096,
                      [b](std::int64_t begin, std::int64_t end, int) {
                        std::memset(b->data + begin, 0, static_cast<std::size_t>(end - begin));
                      });
    ir::release(b);
  }
}

/// What a command writes to stdout. Throws when it fails.
std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string out;
  char part[256];
  while (pipe && std::fgets(part, sizeof part, pipe.get())) out += part;
  if (out.empty()) throw Error("[bench] no answer from: " + command);
  return out;
}

}  // namespace

Row measure(const Workload& workload, const std::string& mode) {
  Row row;
  row.workload = workload.name;
  row.dtype = workload.dtype;
  row.mode = mode;
  row.tolerance = workload.tolerance;
  const OptionScope lazy(Mode::Lazy, mode == "vm" ? Tier::Vm : config().tier);
  const Program program = workload.make(false);
  const Trace trace = trace_of(program.record());
  row.nodes = trace.nodes;
  const bool eager = mode == "eager";
  row.bytes = eager && workload.floor != Workload::Floor::Flops ? trace.eager_bytes : workload.bytes;
  const OptionScope in_mode(eager ? Mode::Eager : Mode::Lazy, config().tier);

  {
    const std::vector<Tensor> out = program.record();
    eval(out);
    const OptionScope lazily(Mode::Lazy, config().tier);
    row.max_err = program.max_error(out);
    if (program.remark) row.remark = program.remark(out);
  }
  run(program);
  wait_for_compiles();  // plans and kernels are there now
  const Statistics before = statistics();
  run(program);
  const Statistics after = statistics();
  row.kernels = after.launches - before.launches + after.library_calls - before.library_calls;

  const Timing timing = time(program);
  row.median_ms = timing.median * 1e3;
  row.min_ms = timing.min * 1e3;
  row.max_ms = timing.max * 1e3;
  row.runs = timing.samples;
  row.gbps = row.bytes / timing.median * 1e-9;
  const Program tiny = workload.make(true);
  run(tiny);
  wait_for_compiles();
  row.host_us = time(tiny).median * 1e6;
  return row;
}

void set_floor(Row& row, const Workload& workload, const cpu::Ceilings& ceilings) {
  if (workload.floor == Workload::Floor::Flops) {
    row.floor_ms = workload.flops / ceilings.fma_gflops * 1e-6;
  } else if (row.bytes >= kMemoryBound) {
    const bool reads = workload.floor == Workload::Floor::Read && row.mode == "fused";
    row.floor_ms = row.bytes / (reads ? ceilings.read_gbps : ceilings.copy_gbps) * 1e-6;
  }
}

void run_first(const Workload& workload) {
  const Program program = workload.make(false);
  warm_pool(program.record());
  const double begin = seconds();
  run(program);
  const double ms = (seconds() - begin) * 1e3;
  wait_for_compiles();  // the second process finds them on disk
  const Statistics s = statistics();
  const nlohmann::json out = {
      {"ms", ms}, {"compiled", s.kernels_compiled}, {"from_disk", s.kernels_from_disk}};
  std::printf("%s\n", out.dump().c_str());
}

void measure_first(const Workload& workload, Row& row) {
  char directory[] = "/tmp/kiln_bench_XXXXXX";
  if (!mkdtemp(directory)) throw Error("[bench] cannot make a directory under /tmp");
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command =
      std::string("env -u KILN_DUMP -u KILN_DEBUG -u KILN_LOG -u KILN_MODE KILN_CACHE=rw KILN_CACHE_DIR=") +
      directory + "/kiln KILN_NUM_THREADS=" + std::to_string(cpu::thread_count()) +
      (row.mode == "vm" ? " KILN_TIER=vm '" : " '") + self +
      "' bench --first " + workload.name;
  try {
    const auto cold = nlohmann::json::parse(output_of(command));
    const auto disk = nlohmann::json::parse(output_of(command));
    row.cold_ms = cold["ms"].get<double>();
    row.disk_ms = disk["ms"].get<double>();
    row.disk_compiles = disk["compiled"].get<std::uint64_t>();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "kiln: %s: %s\n", workload.name.c_str(), e.what());
  }
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
}

}  // namespace kiln::tool
