#include "bench_row.h"

#include "device/cpu/pool.h"
#include "device/cpu/threads.h"
#include "record/node.h"

#include <kiln/report.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <unordered_set>

namespace kiln::tool {
namespace {

constexpr double kBudgetSeconds = 0.5;
constexpr int kRounds = 5, kLeastSamples = 2, kMostSamples = 100;  // samples of a round
constexpr double kSampleSeconds = 100e-6;  // short programs are repeated within a sample

/// What a recorded trace holds, and the bytes it moves when every operation is a kernel of its own.
struct Trace {
  std::uint64_t nodes = 0;
  double eager_bytes = 0;
};

/// A view of more than one array is computed.
bool joins(ir::Op op) { return op == ir::Op::pad || op == ir::Op::join; }

double bytes_read(const ir::Node* node) {
  std::int64_t numel = node->numel;
  while (ir::is_view(node->op) && !joins(node->op)) {
    node = ir::operands(*node)[0];
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
                       (kind != ir::OpKind::View || joins(node->op));
    if (moves) trace.eager_bytes += static_cast<double>(node->numel * size_of(node->dtype));
    const auto operands = ir::operands(*node);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (moves && operands[i] && (i == 0 || operands[i] != operands[0]))
        trace.eager_bytes += bytes_read(operands[i]);
      visit(operands[i]);
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
    buffers.push_back(cpu::allocate(static_cast<std::uint64_t>(t.numel() * size_of(t.dtype()))));
  for (ir::Buffer* b : buffers) {
    cpu::parallel_for(static_cast<std::int64_t>(b->bytes), 4096,
                      [b](std::int64_t begin, std::int64_t end, int) {
                        std::memset(b->data + begin, 0, static_cast<std::size_t>(end - begin));
                      });
    ir::release(b);
  }
}

/// Evaluates in the mode in force and compares.
double checked(const Program& program, std::string* remark) {
  const std::vector<Tensor> out = program.record();
  eval(out);
  const OptionScope lazily(Mode::Lazy, config().tier);
  if (remark && program.remark) *remark = program.remark(out);
  return program.max_error(out);
}

}  // namespace

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void run(const Program& program) {
  const std::vector<Tensor> out = program.record();
  eval(out);
}

Timing time_on_host(const Program& program, const std::function<void()>& beside) {
  for (int i = 0; i < 3; ++i) run(program);
  double begin = seconds();
  run(program);
  const int repeat = std::max(1, static_cast<int>(kSampleSeconds / std::max(seconds() - begin, 1e-7)));
  std::vector<double> samples;
  for (int round = 0; round < kRounds; ++round) {
    if (beside) {
      beside();
      run(program);  // its inputs are as warm as they are going to be
    }
    const double start = seconds();
    for (int i = 0; i < kLeastSamples || (i < kMostSamples && seconds() - start < kBudgetSeconds / kRounds);
         ++i) {
      begin = seconds();
      for (int r = 0; r < repeat; ++r) run(program);
      samples.push_back((seconds() - begin) / repeat * 1e3);
    }
  }
  std::sort(samples.begin(), samples.end());
  return {samples[samples.size() / 2], samples.front(), samples.back(), static_cast<int>(samples.size())};
}

Program made(const Workload& workload, bool tiny) {
  const OptionScope lazy(Mode::Lazy, config().tier);
  return workload.make(tiny);
}

Row measure(const Workload& workload, const Program& program, const std::string& mode, bool first,
            BenchDevice& device) {
  Row row;
  row.workload = workload.name;
  row.device = device.name();
  row.dtype = workload.dtype;
  row.mode = mode;
  row.tolerance = workload.tolerance;
  const OptionScope lazy(Mode::Lazy, mode == "vm" ? Tier::Vm : config().tier);
  const Trace trace = trace_of(program.record());
  row.nodes = trace.nodes;
  const bool eager = mode == "eager";
  row.bytes = eager && workload.floor != Workload::Floor::Flops ? trace.eager_bytes : workload.bytes;
  const OptionScope in_mode(eager ? Mode::Eager : Mode::Lazy, config().tier);

  const std::uint64_t fallbacks = statistics().fallbacks;
  run(program);
  wait_for_compiles();  // kernels are there now
  row.max_err = checked(program, &row.remark);
  const Statistics before = statistics();
  run(program);
  const Statistics after = statistics();
  row.kernels = after.launches - before.launches + after.library_calls - before.library_calls;
  if (after.fallbacks != fallbacks)
    row.remark += "kernels that did not compile: run another way, see the warnings above";

  const auto [timing, floor_ms] = device.time_beside_floor(workload, program, row);
  row.floor_ms = floor_ms;
  row.median_ms = timing.median;
  row.min_ms = timing.min;
  row.max_ms = timing.max;
  row.runs = timing.samples;
  row.gbps = row.bytes / timing.median * 1e-6;
  const Program tiny = made(workload, true);
  run(tiny);
  wait_for_compiles();
  row.host_us = time_on_host(tiny).median * 1e3;
  device.wait();
  if (first) device.measure_first(workload, program, row);
  return row;
}

double few_elements_error(const Workload& workload, const std::string& mode) {
  const OptionScope tier(Mode::Lazy, mode == "vm" ? Tier::Vm : config().tier);
  const Program program = made(workload, true);
  const OptionScope in_mode(mode == "eager" ? Mode::Eager : Mode::Lazy, config().tier);
  run(program);
  wait_for_compiles();
  return checked(program, nullptr);
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

}  // namespace kiln::tool
