#include "device/cuda/cuda_device.h"

#include "device/cpu/cpu_device.h"
#include "device/cuda/copy.h"
#include "device/cuda/cuda_compiler.h"
#include "device/cuda/driver.h"
#include "device/cuda/graph.h"
#include "device/cuda/launches.h"
#include "device/cuda/module.h"
#include "device/cuda/nvrtc.h"
#include "device/cuda/pool.h"
#include "device/cuda/strided_copy.h"
#include "math/expand.h"
#include "support/check.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <new>
#include <utility>

namespace kiln::cuda {
namespace {

constexpr int kMostDevices = ir::most_devices(kiln::Device::Kind::Cuda);

/// Lives in its block's header.
struct CudaBuffer : ir::Buffer {
  Block* block = nullptr;
  // the stream that used it last; earlier ones are ordered before it
  std::atomic<Stream> last{nullptr};
  std::atomic<ir::Buffer*> mirror{nullptr};  // a copy in host memory, once somebody asked for one
};
static_assert(sizeof(CudaBuffer) <= sizeof(Block::owner));

/// Memory that somebody else owns.
struct LentBuffer : CudaBuffer {
  std::function<void()> done;
};

void give_back(ir::Buffer* b) {
  auto* self = static_cast<LentBuffer*>(b);
  if (ir::Buffer* mirror = self->mirror.load(std::memory_order_relaxed)) ir::release(mirror);
  if (!ended()) {
    try {
      // its owner may reuse it at once, on any stream
      cuda::synchronize(self->last.load(std::memory_order_relaxed));
    } catch (...) {  // the device is lost: nothing runs there
    }
  }
  self->done();
  delete self;
}

CudaBuffer& as_cuda(const ir::Buffer& b) { return static_cast<CudaBuffer&>(const_cast<ir::Buffer&>(b)); }

class CudaDevice final : public device::Device {
 public:
  explicit CudaDevice(int index)
      : index_(index), target_(target_of(cuda::device(index))), compiler_(make_compiler(index)) {}

  std::string name() const override { return cat("cuda:", index_, " (", cuda::device(index_).name, ")"); }
  std::string identity() const override {
    return cat(cuda::device(index_).name, ", driver for CUDA ", driver().version);
  }
  const schedule::Target& target() const override { return target_; }
  bool is_host() const override { return false; }
  int wide_access_bytes() const override { return 16; }
  double copy_gbps() const override { return target_.bytes_per_ns; }

  std::shared_ptr<const device::Compiler> compiler() override {
    nvrtc();  // opened by the thread that asks: the first one's end waits for compiles under way
    return compiler_;
  }
  int most_instances(const kernel::Kernel& kernel) const override {
    return cuda::most_instances(kernel, parameter_bytes(index_));
  }
  int room_for(const kernel::Kernel& kernel, int instances) const override {
    return cuda::room_for(kernel, instances, parameter_bytes(index_));
  }
  device::LaunchShape shape_of(const kernel::Kernel& kernel, std::int64_t grid) const override {
    return cuda::shape_of(kernel, grid);
  }
  void prepare(const device::Launch& launch) override { cuda::prepare(launch); }
  void launch(std::span<const device::Bound> launches) override { launch_kernels(launches, index_); }
  double seconds(const std::function<void()>& enqueue) override {
    const Stream stream = current_stream(index_);
    const Event before = cuda::record(stream, true);
    enqueue();
    const Event after = cuda::record(stream, true);
    after.synchronize();
    return elapsed_ms(before, after) * 1e-3;
  }

  bool records_graphs() const override { return true; }
  bool graphs_change() const override { return cuda::graphs_change(); }
  std::unique_ptr<device::Graph> record(std::size_t steps, std::int64_t counters,
                                        const std::function<void(std::size_t)>& enqueue) override {
    return record_graph(index_, steps, counters, enqueue);
  }
  std::uintptr_t stream_id() override { return reinterpret_cast<std::uintptr_t>(current_stream(index_)); }

  ir::Buffer* allocate(std::uint64_t bytes) override {
    const Stream stream = current_stream(index_);
    Block* block = cuda::allocate(bytes, stream);
    auto* buffer = new (block->owner) CudaBuffer;
    buffer->device = kiln::Device::cuda(index_);
    buffer->data = block->data;
    buffer->bytes = bytes;
    buffer->block = block;
    buffer->last.store(stream, std::memory_order_relaxed);
    buffer->free = [](ir::Buffer* b) {
      CudaBuffer& self = as_cuda(*b);
      Block* const own = self.block;
      const Stream last = self.last.load(std::memory_order_relaxed);
      if (ir::Buffer* mirror = self.mirror.load(std::memory_order_relaxed)) ir::release(mirror);
      self.~CudaBuffer();
      cuda::release(own, last);
    };
    return buffer;
  }

  ir::Buffer* lend(std::byte* data, std::uint64_t bytes, std::function<void()> done) override {
    auto* buffer = new LentBuffer;
    buffer->writable = false;
    buffer->device = kiln::Device::cuda(index_);
    buffer->data = data;
    buffer->bytes = bytes;
    buffer->last.store(current_stream(index_), std::memory_order_relaxed);
    buffer->done = std::move(done);
    buffer->free = give_back;
    return buffer;
  }

  void use(ir::Buffer& buffer) override {
    CudaBuffer& b = as_cuda(buffer);
    const Stream now = current_stream(index_);
    if (b.last.load(std::memory_order_relaxed) == now) return;
    const Stream before = b.last.exchange(now, std::memory_order_relaxed);
    if (before != now) order(before, now);
  }

  void write(ir::Buffer& to, const void* from, std::uint64_t bytes) override {
    if (bytes == 0) return;
    use(to);
    copy_to_device(to.data, from, bytes, current_stream(index_));
  }
  void read(void* to, const ir::Buffer& from, std::int64_t offset, std::uint64_t bytes) override {
    if (bytes == 0) return;
    use(const_cast<ir::Buffer&>(from));
    copy_to_host(to, from.data + offset, bytes, current_stream(index_));
  }
  void write_from_peer(ir::Buffer& to, const ir::Buffer& from, std::uint64_t bytes) override {
    as_device(from.device.index).use(const_cast<ir::Buffer&>(from));
    copy_across(to.data, current_stream(index_), from.data, current_stream(from.device.index), bytes);
  }

  const std::byte* host_memory(const ir::Buffer& buffer) override {
    CudaBuffer& b = as_cuda(buffer);
    if (const ir::Buffer* made = b.mirror.load(std::memory_order_acquire)) return made->data;
    ir::Buffer* copy = cpu::as_device().allocate(buffer.bytes);
    try {
      read(copy->data, buffer, 0, buffer.bytes);
    } catch (...) {
      ir::release(copy);
      throw;
    }
    ir::Buffer* first = nullptr;
    if (b.mirror.compare_exchange_strong(first, copy, std::memory_order_acq_rel)) return copy->data;
    ir::release(copy);
    return first->data;
  }
  void forget_host_copy(ir::Buffer& buffer) override {
    if (ir::Buffer* made = as_cuda(buffer).mirror.exchange(nullptr, std::memory_order_acq_rel))
      ir::release(made);
  }

  void pack(std::byte* to, const std::byte* from, std::span<const std::int64_t> dims,
            std::span<const std::int64_t> strides, DType dtype) override {
    StridedCopy copy;
    copy.to = to;
    copy.from = from;
    copy.rank = static_cast<int>(dims.size());
    std::copy(dims.begin(), dims.end(), copy.extents);
    std::copy(strides.begin(), strides.end(), copy.strides);
    const std::int64_t count = copy.count();
    if (count == 0) return;
    const Stream stream = current_stream(index_);
    if (strides.empty())
      copy_on_device(to, from, static_cast<std::uint64_t>(count * size_of(dtype)), stream);
    else
      copy_strided(copy, size_of(dtype), stream);
  }
  void write_number(std::byte* to, std::int64_t value, bool low) override {
    const Stream stream = current_stream(index_);
    fill(to, static_cast<std::uint32_t>(value), 4, 1, stream);
    if (!low) fill(to + 4, static_cast<std::uint32_t>(value >> 32), 4, 1, stream);
  }
  void zero(std::byte* to, std::uint64_t bytes) override { fill(to, 0, 1, bytes, current_stream(index_)); }
  bool read_truth(const std::byte* truth) override {
    std::byte value{};
    copy_to_host(&value, truth, 1, current_stream(index_));
    return value != std::byte{0};
  }
  void synchronize() override { cuda::synchronize(current_stream(index_)); }

  MemoryUse memory_use() const override {
    const PoolStatistics s = pool_statistics(index_);
    return {s.in_use, s.held, s.limit};
  }
  std::uint64_t trim(std::uint64_t keep) override { return cuda::trim(index_, keep); }
  void limit_memory(std::uint64_t bytes) override { set_memory_limit(index_, bytes); }

 private:
  const int index_;
  const schedule::Target target_;
  const std::shared_ptr<const device::Compiler> compiler_;
};

}  // namespace

schedule::Target target_of(const DeviceInfo& d) {
  schedule::Target t;
  t.gpu = true;
  t.templates = d.major >= 8 ? schedule::Target::Templates::Few : schedule::Target::Templates::Integers;
  t.threads = d.sm_count;
  t.architecture = d.major * 10 + d.minor;
  t.attentions = t.pair_sums = d.major >= 8;
  t.l2_bytes = static_cast<std::int64_t>(d.l2_bytes) / std::max(d.sm_count, 1);
  t.bytes_per_ns = d.major >= 10 ? 7000 : d.major == 9 ? 4000 : d.major == 8 && d.minor == 0 ? 1500 : 700;
  t.cached_bytes_per_ns = 2 * t.bytes_per_ns;
  t.prims_per_ns = 64.0 * d.sm_count;
  t.launch_ns = 3000;
  t.scans = std::int64_t{1024} * t.threads;
  t.held = 1 << 15;  // in the registers of the largest block
  t.run_bytes = 64;  // below that warps ask for parts of the same lines
  t.op_cost = lower::op_costs(true);
  return t;
}

device::Device& as_device(int index) {
  static std::array<std::atomic<CudaDevice*>, kMostDevices> devices{};
  if (index < 0 || index >= kMostDevices)
    throw DeviceError(cat("[device] cuda:", index, ": at most ", kMostDevices, " devices are used"));
  std::atomic<CudaDevice*>& place = devices[static_cast<std::size_t>(index)];
  if (CudaDevice* made = place.load(std::memory_order_acquire)) [[likely]]
    return *made;
  auto own = std::make_unique<CudaDevice>(index);
  CudaDevice* first = nullptr;
  if (!place.compare_exchange_strong(first, own.get(), std::memory_order_acq_rel)) return *first;
  return *own.release();  // for ever: buffers are freed during exit, too
}

}  // namespace kiln::cuda
