#include "device/cpu/cpu_device.h"

#include "device/cpu/cpu_compiler.h"
#include "device/cpu/measure.h"
#include "device/cpu/pool.h"
#include "device/cpu/run.h"
#include "device/cpu/target.h"
#include "device/cpu/threads.h"
#include "ir/layout.h"
#include "math/expand.h"
#include "support/thread_own.h"

#include <kiln/config.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace kiln::cpu {
namespace {

/// Threads that deterministic plans are made for, however many there are.
constexpr int kPlannedThreads = 16;

/// Memory that somebody else owns.
struct LentBuffer : ir::Buffer {
  std::function<void()> done;
};

class CpuDevice final : public device::Device {
 public:
  std::string name() const override { return "cpu"; }
  std::string identity() const override {
    static const std::string model = host_model_name();
    return model;
  }
  const schedule::Target& target() const override {
    struct Kept {
      schedule::Target target;
      std::string level = "?";
      int threads = -1;
    };
    auto& [t, level, threads] = thread_own<Kept, CpuDevice>();
    const int wanted = config().deterministic ? kPlannedThreads : thread_count();
    if (threads == wanted && level == config().cpu_target) return t;
    const CpuTarget host = host_target();
    level = config().cpu_target;
    threads = wanted;
    t = {};
    t.threads = threads;
    t.vector_bytes = host.vector_bytes;
    t.fma = host.fma;
    t.epilogues = true;
    t.attentions = t.pair_sums = true;
    t.l2_bytes = host.l2_bytes;
    t.last_cache_bytes = host.bytes_kept_for_readers();
    t.run_bytes = std::max(t.run_bytes, 2.0 * host.vector_bytes);  // shorter rows leave lanes idle
    // A fixed table by width and thread count, close to a server core of 3 GHz.
    t.bytes_per_ns = std::min(15.0 * threads, 200.0);
    t.cached_bytes_per_ns = 60.0 * threads;
    t.prims_per_ns = 4.0 * (host.vector_bytes / 4) * threads;
    static const std::vector<float> costs = lower::op_costs(false);
    t.op_cost = costs;
    return t;
  }
  bool is_host() const override { return true; }
  double copy_gbps() const override { return ceilings().copy_gbps; }

  std::shared_ptr<const device::Compiler> compiler() override { return cpu::compiler(); }
  void launch(std::span<const device::Bound> launches) override { run(launches.front()); }
  double seconds(const std::function<void()>& enqueue) override {
    const auto start = std::chrono::steady_clock::now();
    enqueue();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  ir::Buffer* allocate(std::uint64_t bytes) override { return cpu::allocate(bytes); }
  ir::Buffer* lend(std::byte* data, std::uint64_t bytes, std::function<void()> done) override {
    auto* buffer = new LentBuffer;
    buffer->writable = false;
    buffer->data = data;
    buffer->bytes = bytes;
    buffer->done = std::move(done);
    buffer->free = [](ir::Buffer* b) {
      auto* self = static_cast<LentBuffer*>(b);
      self->done();
      delete self;
    };
    return buffer;
  }
  void use(ir::Buffer&) override {}
  void write(ir::Buffer& to, const void* from, std::uint64_t bytes) override {
    if (bytes > 0) std::memcpy(to.data, from, bytes);
  }
  void read(void* to, const ir::Buffer& from, std::int64_t offset, std::uint64_t bytes) override {
    if (bytes > 0) std::memcpy(to, from.data + offset, bytes);
  }
  void write_from_peer(ir::Buffer& to, const ir::Buffer& from, std::uint64_t bytes) override {
    write(to, from.data, bytes);
  }
  const std::byte* host_memory(const ir::Buffer& buffer) override { return buffer.data; }
  void forget_host_copy(ir::Buffer&) override {}

  void pack(std::byte* to, const std::byte* from, std::span<const std::int64_t> dims,
            std::span<const std::int64_t> strides, DType dtype) override {
    const auto size = static_cast<std::size_t>(size_of(dtype));
    if (strides.empty())
      std::memcpy(to, from, static_cast<std::size_t>(ir::element_count(dims)) * size);
    else
      ir::copy_to_row_major(to, from, dims, strides, size);
  }
  void write_number(std::byte* to, std::int64_t value, bool) override {
    std::memcpy(to, &value, sizeof value);
  }
  void zero(std::byte* to, std::uint64_t bytes) override { std::memset(to, 0, bytes); }
  bool read_truth(const std::byte* truth) override { return *truth != std::byte{0}; }
  void synchronize() override {}

  MemoryUse memory_use() const override {
    const PoolStatistics s = pool_statistics();
    return {s.in_use, s.in_use + s.cached, s.limit};
  }
  std::uint64_t trim(std::uint64_t keep) override { return cpu::trim(keep); }
  void limit_memory(std::uint64_t bytes) override { set_memory_limit(bytes); }
};

}  // namespace

device::Device& as_device(int) {
  static CpuDevice* const device = new CpuDevice;  // buffers are freed during exit, too
  return *device;
}

}  // namespace kiln::cpu
