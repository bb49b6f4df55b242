// A GPU under the bench. Evaluations only enqueue, so events on the stream time them, around batches that are
// enqueued back to back: what a program gets that does not read its values at every step. Floors are made on
// the same device in the same run: a copy of as many bytes, a matrix product, an empty kernel.
#include "bench_device.h"
#include "bench_gpu_rates.h"
#include "temporary_directory.h"

#include "checks.h"
#include "device/cuda/copy.h"
#include "device/cuda/driver.h"
#include "device/cuda/module.h"
#include "device/cuda/nvrtc.h"
#include "device/cuda/pool.h"
#include "device/cuda/stream.h"
#include "library/cuda/blas.h"

#include <kiln/gpu.h>

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>

namespace kiln::tool {
namespace {

constexpr double kBatchMs = 20, kFloorBatchMs = 5;
constexpr int kBatches = 9, kMostABatch = 4000;
constexpr double kRoundMs = 4;  // of a random program, and of the copy beside it
constexpr int kRounds = 5;
constexpr double kMostCopied = 8.0 * (1 << 30);  // traffic above this is scaled from a copy of this size

/// Events around a batch of calls that enqueue: milliseconds a call.
double batch_of(cuda::Stream stream, const std::function<void()>& enqueue, int calls) {
  enqueue();  // the stream has work when the first event is enqueued behind it: the host is ahead
  const cuda::Event begin = cuda::record(stream, true);
  for (int i = 0; i < calls; ++i) enqueue();
  const cuda::Event end = cuda::record(stream, true);
  end.synchronize();
  return cuda::elapsed_ms(begin, end) / calls;
}

/// So many calls take about `batch_ms`, when one takes `ms`.
int calls_of(double ms, double batch_ms) {
  return static_cast<int>(std::clamp(batch_ms / std::max(ms, 1e-4), 1.0, double{kMostABatch}));
}

Timing timing_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return {samples[samples.size() / 2], samples.front(), samples.back(), static_cast<int>(samples.size())};
}

Timing time_on_stream(cuda::Stream stream, const std::function<void()>& enqueue, double batch_ms) {
  batch_of(stream, enqueue, 3);
  const int calls = calls_of(batch_of(stream, enqueue, 5), batch_ms);
  std::vector<double> samples;
  for (int i = 0; i < kBatches; ++i) samples.push_back(batch_of(stream, enqueue, calls));
  return timing_of(std::move(samples));
}

/// An option for the life of a scope.
class ConfigScope {
 public:
  explicit ConfigScope(const Config& c) : before_(config()) { configure(c); }
  ~ConfigScope() { configure(before_); }

 private:
  const Config before_;
};

class GpuBench final : public BenchDevice {
 public:
  explicit GpuBench(int index)
      : index_(index), info_(cuda::device(index)), stream_(cuda::current_stream(index)) {
    cuda::compile_target({info_.major, info_.minor});  // throws without a compiler
    measure_launch();
    copy_gbps_ = 2.0 * (1 << 30) / copy_ms(2.0 * (1 << 30)) * 1e-6;
  }

  std::string name() const override { return "cuda:" + std::to_string(index_); }
  std::vector<Workload> workloads() const override { return gpu_workloads(); }

  std::string refusal(const Workload& workload) const override {
    const bool products =
        workload.floor == Workload::Floor::Flops || workload.name.find("mlp") != std::string::npos;
    return products && !cuda::blas().available ? "no cuBLASLt (" + cuda::blas().reason + ")" : "";
  }

  Timing time(const Program& program) const override {
    return time_on_stream(stream_, [&] { run(program); }, kBatchMs);
  }
  void wait() const override { cuda::synchronize(stream_); }

  /// In this process: what the driver and the compiler need once is there, plans and kernels are not.
  void measure_first(const Workload&, const Program& program, Row& row) const override {
    const TemporaryDirectory directory;
    Config c = config();
    c.cache = "rw";
    c.cache_dir = directory.path() + "/kiln";
    const ConfigScope scope(c);
    row.cold_ms = first_ms(program);
    wait_for_compiles();  // what others answered for is on disk now
    const std::uint64_t compiled = statistics().kernels_compiled;
    row.disk_ms = first_ms(program);
    row.disk_compiles = statistics().kernels_compiled - compiled;
  }

  TimeAndFloor time_beside_floor(const Workload& workload, const Program& program, const Row& row) override {
    const Timing timing = time(program);
    if (workload.floor == Workload::Floor::Flops) {
      measure_products();
      return {timing, workload.flops / tflops_ * 1e-9};
    }
    return {timing, row.bytes < kMemoryBound ? launch_us_ * 1e-3 : copy_ms(row.bytes)};
  }

  TimeAndCopy time_beside_copy(const Program& program, double bytes) override {
    const double moved = std::min(bytes, kMostCopied);
    const auto half = std::max<std::uint64_t>(static_cast<std::uint64_t>(moved / 2) / 4 * 4, 4);
    cuda::Block* from = cuda::allocate(half, stream_);
    cuda::Block* to = cuda::allocate(half, stream_);
    cuda::fill(from->data, 0x3f9d70a4, 4, half / 4, stream_);
    const auto copy = [&] { cuda::copy_on_device(to->data, from->data, half, stream_); };
    const auto enqueue = [&] { run(program); };
    batch_of(stream_, copy, 3);
    const int copies = calls_of(batch_of(stream_, copy, 3), kRoundMs);
    const int calls = calls_of(batch_of(stream_, enqueue, 1), kRoundMs);
    std::vector<double> times, copy_times;
    for (int i = 0; i < kRounds; ++i) {
      times.push_back(batch_of(stream_, enqueue, calls));
      copy_times.push_back(batch_of(stream_, copy, copies));
    }
    cuda::release(from, stream_);
    cuda::release(to, stream_);
    return {timing_of(std::move(times)), timing_of(std::move(copy_times)).median * bytes / moved};
  }

  Chip chip() override {
    const double shared = info_.shared_per_block_optin;
    constexpr double kClusterBlocks = 8;  // of one cluster, everywhere where there are clusters
    // The throughput table of CUDA's programming guide: 128 float32 additions a multiprocessor and clock, 64
    // minima (a pipe that also compares and selects), 64 float64 additions, or 2 on cards for graphics. A
    // float64 minimum is no instruction: a comparison, which counts as an addition, and two selections. There
    // are 16 float32 exponentials; of float64 there are none, but ten multiply-adds at least.
    // What random rows are read by from memory: rows of 32 bytes out of 512 MiB take 2.2 times as long as
    // their bytes do in a copy. A second cache has halves, each for its own multiprocessors, and what all of
    // them read stands in both: of 64 MiB so many of such rows are found there as five eighths of an H200's
    // 60 MiB hold.
    constexpr double kLineBytes = 64, kOfCache = 0.625;
    measure_random();
    const bool doubles = info_.major >= 8 && info_.minor == 0 && info_.major <= 10;
    return {.slab_bytes = info_.clusters ? kClusterBlocks * shared : shared,
            .own_bytes = shared,
            .cache_bytes = kOfCache * static_cast<double>(info_.l2_bytes),
            .line_bytes = kLineBytes,
            .read = random_.read,
            .add = random_.add,
            .per_ms = 128.0 * info_.sm_count * info_.clock_khz,
            .extreme = 2,
            .doubled = doubles ? 2.0 : 64.0,
            .doubled_extreme = 4,
            .function = 8,
            .doubled_function = 10 * (doubles ? 2.0 : 64.0),
            .launch_ms = launch_us_ * 1e-3};
  }
  void trim() const override { trim_memory(Device::cuda(index_)); }

  std::string title() const override {
    char text[256];
    std::snprintf(text, sizeof text, "%s (sm_%d, %d multiprocessors, %.0f GiB), CUDA driver %s, %s",
                  info_.name.c_str(), info_.major * 10 + info_.minor, info_.sm_count,
                  static_cast<double>(info_.memory_bytes) / (1 << 30), driver_version().c_str(),
                  cuda::compiler_version().c_str());
    return text;
  }
  std::string rates() const override {
    char text[256];
    std::snprintf(text, sizeof text,
                  "copy of 1 GiB %.0f GB/s, empty launch %.2f µs back to back, %.1f µs with waiting",
                  copy_gbps_, launch_us_, launch_wait_us_);
    char products[64] = "";
    if (tflops_ > 0) std::snprintf(products, sizeof products, ", bfloat16 product %.0f TFLOP/s", tflops_);
    return std::string(text) + products;
  }
  std::string legend() const override {
    return "times: events around batches of evaluations enqueued back to back;\n"
           "floor: a device copy that moves as many bytes; linear, swiglu: flops over the rate of a product "
           "of 8192 cubed;\n"
           "       below 32 MiB of traffic: one empty launch;\n"
           "cold, disk: first evaluation after plans and kernels in memory were dropped, without and with "
           "the disk cache;";
  }
  nlohmann::ordered_json facts() const override {
    return {{"gpu", info_.name},
            {"arch", "sm_" + std::to_string(info_.major * 10 + info_.minor)},
            {"sm_count", info_.sm_count},
            {"driver", driver_version()},
            {"compiler", cuda::compiler_version()},
            {"cublaslt", cuda::blas().version},
            {"copy_gbps", copy_gbps_},
            {"product_tflops", tflops_},
            {"read_row_ns", random_.read.row * 1e6},
            {"read_byte_ns", random_.read.byte * 1e6},
            {"add_row_ns", random_.add.row * 1e6},
            {"add_byte_ns", random_.add.byte * 1e6},
            {"launch_us", launch_us_},
            {"launch_wait_us", launch_wait_us_}};
  }

 private:
  static std::string driver_version() {
    const int v = cuda::driver().version;
    return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10);
  }

  double first_ms(const Program& program) const {
    wait();
    clear_memory_caches();
    const double begin = seconds();
    run(program);
    wait();
    return (seconds() - begin) * 1e3;
  }

  /// Of a copy that reads and writes `bytes` in all.
  double copy_ms(double bytes) {
    const double measured = std::min(bytes, kMostCopied);
    const auto half = static_cast<std::uint64_t>(measured / 2);
    double& ms = copies_[half];
    if (ms == 0) {
      cuda::Block* from = cuda::allocate(half, stream_);
      cuda::Block* to = cuda::allocate(half, stream_);
      cuda::fill(from->data, 0x3f9d70a4, 4, half / 4, stream_);
      ms = time_on_stream(
               stream_, [&] { cuda::copy_on_device(to->data, from->data, half, stream_); }, kFloorBatchMs)
               .median;
      cuda::release(from, stream_);
      cuda::release(to, stream_);
    }
    return ms * bytes / measured;
  }

  void measure_launch() {
    const cuda::Code code = cuda::compile("extern \"C\" __global__ void kiln_empty() {}\n", "kiln_empty",
                                          {info_.major, info_.minor});
    const cuda::Function empty = cuda::find_function(cuda::load_module(index_, code.image), "kiln_empty");
    const auto launch = [&] { cuda::launch(empty, {}, stream_, nullptr); };
    launch_us_ = time_on_stream(stream_, launch, kFloorBatchMs).median * 1e3;
    std::vector<double> samples;
    for (int i = 0; i < 200; ++i) {
      const double begin = seconds();
      launch();
      wait();
      samples.push_back(seconds() - begin);
    }
    std::nth_element(samples.begin(), samples.begin() + 100, samples.end());
    launch_wait_us_ = samples[100] * 1e6;
  }

  void measure_random() {
    if (random_.read.byte > 0) return;
    random_ = measure_random_rates(index_, stream_, [&](const std::function<void()>& enqueue) {
      return time_on_stream(stream_, enqueue, kFloorBatchMs).median;
    });
  }

  void measure_products() {
    constexpr std::int64_t n = 8192;
    if (!a_.valid()) {
      a_ = uniform({n, n}, -1, 1, 1, DType::BFloat16);
      b_ = uniform({n, n}, -1, 1, 2, DType::BFloat16);
    }
    const auto product = [&] { matmul(a_, b_).eval(); };
    tflops_ = std::max(tflops_, 2.0 * n * n * n / time_on_stream(stream_, product, kBatchMs).median * 1e-9);
  }

  const int index_;
  const cuda::DeviceInfo& info_;
  const cuda::Stream stream_;
  double copy_gbps_ = 0, launch_us_ = 0, launch_wait_us_ = 0, tflops_ = 0;
  RandomRates random_;
  std::map<std::uint64_t, double> copies_;
  Tensor a_, b_;
};

}  // namespace

std::unique_ptr<BenchDevice> gpu_bench(int index) { return std::make_unique<GpuBench>(index); }

}  // namespace kiln::tool
