// The CPU under the bench: evaluations end when their results are there, so a thread's clock times them.
#include "bench_device.h"
#include "temporary_directory.h"

#include "device/cpu/measure.h"
#include "device/cpu/pool.h"
#include "device/cpu/target.h"
#include "device/cpu/threads.h"

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

namespace kiln::tool {
namespace {

constexpr int kProbes = 7;  // of the floor between every few samples of the program
constexpr std::size_t kLeastRounds = 5, kMostRounds = 25;  // beside a copy
constexpr double kRoundsSeconds = 0.4, kBriefSeconds = 500e-6;

/// What a command writes to stdout. Throws when it fails.
std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string out;
  char part[256];
  while (pipe && std::fgets(part, sizeof part, pipe.get())) out += part;
  if (out.empty()) throw Error("[bench] no answer from: " + command);
  return out;
}

class CpuBench final : public BenchDevice {
 public:
  std::string name() const override { return "cpu"; }
  std::vector<Workload> workloads() const override { return cpu_workloads(); }
  std::string refusal(const Workload&) const override { return {}; }
  Timing time(const Program& program) const override { return time_on_host(program); }
  void wait() const override {}

  /// Two new processes with one empty cache directory.
  void measure_first(const Workload& workload, const Program&, Row& row) const override {
    const TemporaryDirectory directory;
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    const std::string command =
        std::string(
            "env -u KILN_DUMP -u KILN_DEBUG -u KILN_LOG -u KILN_MODE -u KILN_DEVICE KILN_CACHE=rw "
            "KILN_CACHE_DIR=") +
        directory.path() + "/kiln KILN_NUM_THREADS=" + std::to_string(cpu::thread_count()) +
        (row.mode == "vm" ? " KILN_TIER=vm '" : " '") + self + "' bench --first " + workload.name;
    try {
      const auto cold = nlohmann::json::parse(output_of(command));
      const auto disk = nlohmann::json::parse(output_of(command));
      row.cold_ms = cold["ms"].get<double>();
      row.disk_ms = disk["ms"].get<double>();
      row.disk_compiles = disk["compiled"].get<std::uint64_t>();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "kiln: %s: %s\n", workload.name.c_str(), e.what());
    }
  }

  /// The floor's rate by turns with the program: a shared machine has slow and fast minutes, which both then
  /// see.
  TimeAndFloor time_beside_floor(const Workload& workload, const Program& program, const Row& row) override {
    const bool computes = workload.floor == Workload::Floor::Flops;
    if (!computes && row.bytes < kMemoryBound) return {time(program)};
    const bool reads = workload.floor == Workload::Floor::Read && row.mode == "fused";
    const auto probe = computes ? cpu::multiply_add_probe()
                       : reads  ? cpu::read_probe(row.bytes)
                                : cpu::copy_probe(row.bytes);
    std::vector<double> rates;
    const Timing timing = time_on_host(program, [&] {
      for (int i = 0; i < kProbes; ++i) rates.push_back(probe->rate());
    });
    std::sort(rates.begin(), rates.end());
    return {timing, (computes ? workload.flops : row.bytes) / rates[rates.size() / 2] * 1e-6};
  }

  TimeAndCopy time_beside_copy(const Program& program, double bytes) override {
    const auto probe = cpu::copy_probe(bytes);
    double begin = seconds();
    run(program);
    const double once = seconds() - begin;
    const int repeat = std::max(1, static_cast<int>(kBriefSeconds / std::max(once, 1e-7)));
    std::vector<double> samples, copies;
    const double start = seconds();
    while (samples.size() < kLeastRounds ||
           (samples.size() < kMostRounds && seconds() - start < kRoundsSeconds)) {
      copies.push_back(bytes / probe->rate() * 1e-6);
      begin = seconds();
      for (int i = 0; i < repeat; ++i) run(program);
      samples.push_back((seconds() - begin) / repeat * 1e3);
    }
    std::sort(samples.begin(), samples.end());
    std::sort(copies.begin(), copies.end());
    return {{samples[samples.size() / 2], samples.front(), samples.back(), static_cast<int>(samples.size())},
            copies[copies.size() / 2]};
  }

  Chip chip() override {
    const cpu::CpuTarget target = cpu::host_target();
    const auto l2 = static_cast<double>(target.l2_bytes);
    return {.slab_bytes = l2,
            .cache_bytes = l2 * cpu::thread_count(),
            .line_bytes = 64,
            .per_ms = ceilings_.fma_gflops / 2 * 1e6};
  }
  void trim() const override { cpu::trim(); }

  std::string title() const override {
    return cpu::host_model_name() + " (" + cpu::host_cpu_name() + "), threads " + cpu::thread_count_reason();
  }
  std::string rates() const override {
    char text[128];
    std::snprintf(text, sizeof text, "copy %.1f GB/s, read %.1f GB/s, float32 multiply-add %.0f GFLOP/s",
                  ceilings_.copy_gbps, ceilings_.read_gbps, ceilings_.fma_gflops);
    return text;
  }
  std::string legend() const override {
    return "floor: a copy that moves as many bytes as the least traffic, measured by turns with the program "
           "(sum_sq: a sum;\n"
           "       linear: multiply-adds); medians of both;\n"
           "cold, disk: first evaluation of a new process without and with the disk cache;";
  }
  nlohmann::ordered_json facts() const override {
    return {{"cpu", cpu::host_model_name()},    {"llvm_name", cpu::host_cpu_name()},
            {"threads", cpu::thread_count()},   {"copy_gbps", ceilings_.copy_gbps},
            {"read_gbps", ceilings_.read_gbps}, {"fma_gflops", ceilings_.fma_gflops}};
  }

 private:
  const cpu::Ceilings ceilings_ = cpu::ceilings();
};

}  // namespace

std::unique_ptr<BenchDevice> cpu_bench() { return std::make_unique<CpuBench>(); }

}  // namespace kiln::tool
