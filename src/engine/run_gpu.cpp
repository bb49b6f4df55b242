#include "engine/run_gpu.h"

#include "codegen/cuda/cuda_c.h"
#include "device/cuda/copy.h"
#include "device/cuda/pool.h"
#include "engine/trace_log.h"
#include "support/log.h"
#include "support/thread_own.h"

#include <kiln/config.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

namespace kiln::engine {

std::byte* fixed_counters();

namespace {

/// Zeroed counters for the finish sections of one thread's launches on one stream. A kernel leaves them
/// zeroed, and launches of a stream follow each other: they can share.
class Arrivals {
 public:
  std::byte* of(cuda::Stream stream, std::int64_t groups) {
    Counters& c = of_stream(stream);
    if (groups > c.count) {
      if (c.block) cuda::release(std::exchange(c.block, nullptr), stream);
      c.count = std::max<std::int64_t>(groups, 4096);
      c.block = cuda::allocate(static_cast<std::uint64_t>(c.count) * 4, stream);
      cuda::fill(c.block->data, 0, 4, static_cast<std::uint64_t>(c.count), stream);
    }
    return c.block->data;
  }

 private:
  struct Counters {
    cuda::Stream stream;
    cuda::Block* block = nullptr;
    std::int64_t count = 0;
  };
  Counters& of_stream(cuda::Stream stream) {
    for (Counters& c : all_)
      if (c.stream == stream) return c;
    all_.push_back({stream});
    return all_.back();
  }
  std::vector<Counters> all_;
};

constinit thread_local const FixedMemory* fixed = nullptr;

std::byte* counters(cuda::Stream stream, std::int64_t groups) {
  if (std::byte* own = fixed_counters()) return own;
  return thread_own<Arrivals, Arrivals>().of(stream, groups);
}

std::int64_t blocks_of(const Launch& l) {
  const std::int64_t teams = l.threads.block / l.threads.team;
  return std::min<std::int64_t>((l.grid + teams - 1) / teams, std::numeric_limits<std::int32_t>::max());
}

/// Enqueues by `f`; where kernels are logged it waits and says how long that took.
template <class F>
void timed(std::span<const Launch> launches, cuda::Stream stream, F f) {
  if (!log_enabled(Topic::Kernel)) [[likely]]
    return f();
  const cuda::Event before = cuda::record(stream, true);
  f();
  const cuda::Event after = cuda::record(stream, true);
  after.synchronize();
  log_launch(launches, launches.front().verdict, cuda::elapsed_ms(before, after) * 1e-3);
}

void launch_or_set(std::span<const Launch> launches, std::uint32_t blocks, cuda::Stream stream, void** args,
                   const GraphStep* recorded) {
  const Launch& l = launches.front();
  cuda::LaunchShape shape;
  shape.grid[0] = blocks;
  shape.block[0] = l.threads.block;
  if (recorded) return recorded->graph.set_arguments(recorded->step, l.kernel->function, shape, args);
  timed(launches, stream, [&] { cuda::launch(l.kernel->function, shape, stream, args); });
}

void enqueue(const Launch& l, void* const* buffers, const std::uint64_t* slots, cuda::Stream stream,
             const GraphStep* recorded) {
  constexpr std::size_t kNear = 96;
  void* near_args[kNear];
  std::vector<void*> far_args;
  const std::size_t most = l.buffers.size() + 1 + l.params.size() + l.slots.size();
  void** args = near_args;
  if (most > kNear) {
    far_args.resize(most);
    args = far_args.data();
  }
  std::size_t n = 0;
  for (std::size_t b = 0; b < l.buffers.size(); ++b)
    if (l.buffers[b].kind != Place::Kind::None) args[n++] = const_cast<void**>(&buffers[b]);
  std::byte* arrivals = nullptr;
  if (l.counters > 0) {
    arrivals = counters(stream, l.counters);
    args[n++] = &arrivals;
  }
  for (std::size_t p = 0; p < l.params.size(); ++p)
    args[n++] = l.threads.narrow ? static_cast<void*>(const_cast<std::int32_t*>(&l.narrow_params[p]))
                                 : static_cast<void*>(const_cast<std::int64_t*>(&l.params[p]));
  for (std::size_t s = 0; s < l.slots.size(); ++s) args[n++] = const_cast<std::uint64_t*>(&slots[s]);
  launch_or_set({&l, 1}, static_cast<std::uint32_t>(blocks_of(l)), stream, args, recorded);
}

}  // namespace

FixedMemory::FixedMemory(std::byte* workspace, std::byte* counters)
    : workspace_(workspace), counters_(counters) {
  fixed = this;
}
FixedMemory::~FixedMemory() { fixed = nullptr; }
std::byte* fixed_workspace() { return fixed ? fixed->workspace_ : nullptr; }
std::byte* fixed_counters() { return fixed ? fixed->counters_ : nullptr; }

void launch_on_gpu(const Launch& l, void* const* buffers, const std::uint64_t* slots, int device,
                   const GraphStep* recorded) {
  enqueue(l, buffers, slots, cuda::current_stream(device), recorded);
}

GpuInstances::GpuInstances(std::span<const Launch> launches, int device)
    : launches_(launches),
      stream_(cuda::current_stream(device)),
      table_(thread_own<std::vector<std::byte>, GpuInstances>()) {
  const Launch& l = launches.front();
  const std::size_t pointers = static_cast<std::size_t>(std::count_if(
      l.buffers.begin(), l.buffers.end(), [](const Place& p) { return p.kind != Place::Kind::None; }));
  const std::size_t params = l.params.size() * (l.threads.narrow ? 4 : 8);
  set_bytes_ = 8 * (pointers + (l.counters > 0) + l.slots.size()) + (params + 7) / 8 * 8;
  codegen::InstanceTable layout{set_bytes_, l.kernel->instances};
  if (table_.size() < layout.bytes()) table_.resize(layout.bytes());
  std::int64_t groups = 0;
  for (const Launch& each : launches) groups += each.counters;
  if (groups > 0) arrivals_ = counters(stream_, groups);
}

void GpuInstances::add(const Launch& l, void* const* buffers, const std::uint64_t* slots) {
  std::byte* to = table_.data() + added_ * set_bytes_;
  const auto put = [&](const void* value, std::size_t bytes) {
    std::memcpy(to, value, bytes);
    to += bytes;
  };
  for (std::size_t b = 0; b < l.buffers.size(); ++b)
    if (l.buffers[b].kind != Place::Kind::None) put(&buffers[b], 8);
  if (l.counters > 0) {
    put(&arrivals_, 8);
    arrivals_ += 4 * l.counters;
  }
  if (l.threads.narrow) {
    put(l.narrow_params.data(), 4 * l.narrow_params.size());
    if (l.narrow_params.size() % 2) to += 4;
  } else {
    put(l.params.data(), 8 * l.params.size());
  }
  put(slots, 8 * l.slots.size());
  const codegen::InstanceTable layout{set_bytes_, l.kernel->instances};
  std::memcpy(table_.data() + layout.first_blocks() + 4 * added_, &blocks_, 4);
  // All fit one grid; fewer blocks of one go over their items in turns.
  const std::int64_t most =
      std::numeric_limits<std::int32_t>::max() / static_cast<std::int64_t>(launches_.size());
  blocks_ += static_cast<std::uint32_t>(std::min(blocks_of(l), most));
  ++added_;
}

void GpuInstances::launch(const GraphStep* recorded) {
  const Launch& l = launches_.front();
  const codegen::InstanceTable layout{set_bytes_, l.kernel->instances};
  const auto count = static_cast<std::uint32_t>(added_);
  std::memcpy(table_.data() + layout.count(), &count, 4);
  void* args[] = {table_.data()};
  launch_or_set(launches_, blocks_, stream_, args, recorded);
}

}  // namespace kiln::engine
