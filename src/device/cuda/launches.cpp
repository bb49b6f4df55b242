#include "device/cuda/launches.h"

#include "codegen/cuda/cuda_c.h"
#include "device/cuda/copy.h"
#include "device/cuda/cuda_compiler.h"
#include "device/cuda/driver.h"
#include "device/cuda/graph.h"
#include "device/cuda/pool.h"
#include "device/cuda/stream_state.h"
#include "device/cuda/tensor_map.h"
#include "support/check.h"
#include "support/thread_own.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

namespace kiln::cuda {
namespace {

using device::Bound;

const Function& function_of(const device::Launch& l) {
  return static_cast<const CudaCode&>(*l.code).function;
}

/// Zeroed counters for the finish sections of one thread's launches on one stream. A kernel leaves them
/// zeroed, and launches of a stream follow each other: they can share.
class Counters {
 public:
  Counters() = default;
  Counters(const Counters&) = delete;
  Counters& operator=(const Counters&) = delete;
  ~Counters() {
    for (const Held& c : all_) let_go(c);
  }

  std::byte* of(Stream stream, std::int64_t count) {
    Held& c = of_stream(stream);
    if (count > c.count) {
      if (c.block) release(std::exchange(c.block, nullptr), stream);
      c.count = std::max<std::int64_t>(count, 4096);
      c.block = allocate(static_cast<std::uint64_t>(c.count) * 4, stream);
      fill(c.block->data, 0, 4, static_cast<std::uint64_t>(c.count), stream);
    }
    return c.block->data;
  }

 private:
  struct Held {
    Stream stream;
    Block* block = nullptr;
    std::int64_t count = 0;
  };
  static void let_go(const Held& c) {
    if (c.block) release(c.block, c.stream);
  }
  Held& of_stream(Stream stream) {
    for (Held& c : all_)
      if (c.stream == stream) return c;
    std::erase_if(all_, [](const Held& c) {
      const bool gone = c.stream->retired;
      if (gone) let_go(c);
      return gone;
    });
    all_.push_back({stream});
    return all_.back();
  }
  std::vector<Held> all_;
};

/// Of the graph whose launches this thread records or changes; null: the stream's are taken.
constinit thread_local std::byte* graph_counters = nullptr;

class UseGraphCounters {
 public:
  explicit UseGraphCounters(std::byte* counters) { graph_counters = counters; }
  ~UseGraphCounters() { graph_counters = nullptr; }
  UseGraphCounters(const UseGraphCounters&) = delete;
  UseGraphCounters& operator=(const UseGraphCounters&) = delete;
};

std::byte* counters(Stream stream, std::int64_t count) {
  if (graph_counters) return graph_counters;
  return thread_own<Counters, Counters>().of(stream, count);
}

/// f(shape, arguments as the driver takes them) for one set of arguments.
template <class F>
void with_arguments(const Bound& bound, Stream stream, F f) {
  const device::Launch& l = *bound.launch;
  constexpr std::size_t kNear = 96;
  void* near_args[kNear];
  std::vector<void*> far_args;
  const std::size_t most = l.arguments.size() + 1 + l.params.size() + l.slot_count;
  void** args = near_args;
  if (most > kNear) {
    far_args.resize(most);
    args = far_args.data();
  }
  std::size_t n = 0;
  for (const std::uint32_t b : l.arguments) args[n++] = const_cast<void**>(&bound.buffers[b]);
  std::byte* arrivals = nullptr;
  if (l.counters > 0) {
    arrivals = counters(stream, l.counters);
    args[n++] = &arrivals;
  }
  for (std::size_t p = 0; p < l.params.size(); ++p)
    args[n++] = l.narrow ? static_cast<void*>(const_cast<std::int32_t*>(&l.narrow_params[p]))
                         : static_cast<void*>(const_cast<std::int64_t*>(&l.params[p]));
  for (std::size_t s = 0; s < l.slot_count; ++s) args[n++] = const_cast<std::uint64_t*>(&bound.slots[s]);
  f(l.shape, args);
}

/// Fills the table of a kernel that takes several sets of arguments, see codegen::InstanceTable.
class TableWriter {
 public:
  TableWriter(std::span<const Bound> launches, std::byte* arrivals, std::vector<std::byte>& table)
      : layout_{set_bytes(*launches.front().launch), launches.front().launch->instances},
        arrivals_(arrivals),
        table_(table),
        // All fit one grid; fewer blocks of one go over their items in turns.
        most_blocks_(static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max() /
                                                static_cast<std::int64_t>(launches.size()))) {
    if (table_.size() < layout_.bytes()) table_.resize(layout_.bytes());
    for (const Bound& b : launches) add(b);
    std::memcpy(table_.data() + layout_.count(), &added_, 4);
  }
  std::uint32_t blocks() const { return blocks_; }

 private:
  static std::size_t set_bytes(const device::Launch& l) {
    const std::size_t params = l.params.size() * (l.narrow ? 4 : 8);
    return 8 * (l.arguments.size() + (l.counters > 0) + l.slot_count) + (params + 7) / 8 * 8;
  }

  void add(const Bound& bound) {
    const device::Launch& l = *bound.launch;
    std::byte* to = table_.data() + added_ * layout_.set_bytes;
    const auto put = [&](const void* value, std::size_t bytes) {
      if (bytes > 0) std::memcpy(to, value, bytes);  // null where a launch has none
      to += bytes;
    };
    for (const std::uint32_t b : l.arguments) put(&bound.buffers[b], 8);
    if (l.counters > 0) {
      put(&arrivals_, 8);
      arrivals_ += 4 * l.counters;
    }
    if (l.narrow) {
      put(l.narrow_params.data(), 4 * l.narrow_params.size());
      if (l.narrow_params.size() % 2) to += 4;
    } else {
      put(l.params.data(), 8 * l.params.size());
    }
    put(bound.slots, 8 * l.slot_count);
    std::memcpy(table_.data() + layout_.first_blocks() + 4 * added_, &blocks_, 4);
    blocks_ += std::min(l.shape.grid[0], most_blocks_);
    ++added_;
  }

  const codegen::InstanceTable layout_;
  std::byte* arrivals_;
  std::vector<std::byte>& table_;
  const std::uint32_t most_blocks_;
  std::uint32_t blocks_ = 0, added_ = 0;
};

/// The same for several sets, which have one table. Their blocks follow each other along the first axis.
template <class F>
void with_table(std::span<const Bound> launches, Stream stream, F f) {
  std::int64_t count = 0;
  for (const Bound& b : launches) count += b.launch->counters;
  std::vector<std::byte>& table = thread_own<std::vector<std::byte>, TableWriter>();
  const TableWriter written(launches, count > 0 ? counters(stream, count) : nullptr, table);
  device::LaunchShape shape = launches.front().launch->shape;
  shape.grid[0] = written.blocks();
  void* args[] = {table.data()};
  f(shape, args);
}

/// f(shape, arguments) for a kernel with a main loop, whose one argument is the struct that
/// codegen/cuda/cuda_template.h describes.
template <class F>
void with_args_struct(const Bound& bound, Stream stream, F f) {
  const device::Launch& l = *bound.launch;
  std::vector<std::byte>& bytes = thread_own<std::vector<std::byte>, Bound>();
  bytes.assign(l.head.begin(), l.head.end());
  const auto put = [&](const void* value) {
    const auto* from = static_cast<const std::byte*>(value);
    bytes.insert(bytes.end(), from, from + 8);
  };
  constexpr std::size_t kMapAlignment = 64;
  const auto align = [&] {
    bytes.resize((bytes.size() + kMapAlignment - 1) / kMapAlignment * kMapAlignment);
  };
  if (!l.tiled.empty()) align();
  for (const device::TiledBuffer& t : l.tiled) {
    TiledArray array;
    array.address = reinterpret_cast<std::uint64_t>(bound.buffers[t.buffer]);
    array.dtype = t.dtype;
    array.rank = t.rank;
    std::copy_n(t.dims, 5, array.dims);
    std::copy_n(t.strides, 5, array.strides);
    std::copy_n(t.box, 5, array.box);
    array.windows = t.windows;
    std::copy_n(t.lower, 3, array.lower);
    std::copy_n(t.upper, 3, array.upper);
    std::copy_n(t.step, 3, array.step);
    const TensorMap map = encode_tensor_map(function_of(l).device, array);
    bytes.insert(bytes.end(), map.bytes.begin(), map.bytes.end());
  }
  if (l.counters > 0) {
    const std::byte* const zeroed = counters(stream, l.counters);
    put(&zeroed);
  }
  for (const std::uint32_t b : l.arguments) put(&bound.buffers[b]);
  for (const std::int64_t p : l.params) put(&p);
  for (std::size_t s = 0; s < l.slot_count; ++s) put(&bound.slots[s]);
  if (!l.tiled.empty()) align();
  void* args[] = {bytes.data()};
  f(l.shape, args);
}

template <class F>
void with_any_arguments(std::span<const Bound> launches, Stream stream, F f) {
  if (!launches.front().launch->head.empty()) return with_args_struct(launches.front(), stream, f);
  if (launches.size() == 1) return with_arguments(launches.front(), stream, f);
  with_table(launches, stream, f);
}

class CudaGraph final : public device::Graph {
 public:
  /// Takes the block.
  CudaGraph(Block* counters, Stream stream) : counters_(counters), stream_(stream) {}
  ~CudaGraph() override { release(counters_, stream_); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  bool record(std::size_t steps, std::uint64_t counters, const std::function<void(std::size_t)>& enqueue) {
    fill(counters_->data, 0, 4, counters, stream_);
    const UseGraphCounters own(counters_->data);
    graph_ = capture(device_of(stream_), enqueue, steps);
    return static_cast<bool>(graph_);
  }
  void launch() override { graph_.launch(current_stream(device_of(stream_))); }
  void set_arguments(std::size_t step, std::span<const Bound> launches) override {
    const UseGraphCounters own(counters_->data);
    with_any_arguments(launches, stream_, [&](const device::LaunchShape& shape, void** args) {
      graph_.set_arguments(step, function_of(*launches.front().launch), shape, args);
    });
  }

 private:
  Block* const counters_;
  const Stream stream_;  // where it was recorded, and is launched: a plan has a graph for each stream
  cuda::Graph graph_;
};

}  // namespace

device::LaunchShape shape_of(const kernel::Kernel& kernel, std::int64_t grid) {
  const kernel::Threads& threads = kernel.threads;
  device::LaunchShape shape;
  const std::int64_t teams = threads.block / threads.team;
  shape.grid[0] = static_cast<std::uint32_t>(
      std::min<std::int64_t>((grid + teams - 1) / teams, std::numeric_limits<std::int32_t>::max()));
  shape.block[0] = threads.block;
  shape.dynamic_shared = codegen::dynamic_shared(kernel);
  return shape;
}

int most_instances(const kernel::Kernel& kernel, int parameter_bytes) {
  if (!kernel.link.empty() || kernel.main_loop || kernel.tally) return 1;
  return std::max(codegen::instances_in(kernel, static_cast<std::size_t>(parameter_bytes)), 1);
}

int room_for(const kernel::Kernel& kernel, int instances, int parameter_bytes) {
  if (instances == 1) return 1;
  const int few = codegen::instances_in(kernel, kFewParameterBytes);
  return instances <= few ? few : most_instances(kernel, parameter_bytes);
}

void prepare(const device::Launch& l) {
  constexpr std::uint32_t kWithoutAsking = 48 << 10;
  const Function& function = function_of(l);
  const DeviceInfo& info = device(function.device);
  if (l.shape.has_clusters() && !info.clusters)
    throw DeviceError(cat("[cuda] a kernel is launched in clusters of blocks; cuda:", function.device, " (",
                          info.name, ") has none"));
  if (l.shape.cooperative && !info.cooperative)
    throw DeviceError(cat("[cuda] all blocks of a kernel have to run at once; cuda:", function.device, " (",
                          info.name, ") has no cooperative launches"));
  if (l.shape.dynamic_shared + static_cast<std::uint32_t>(function.shared_bytes) > kWithoutAsking)
    allow_dynamic_shared(function, static_cast<int>(l.shape.dynamic_shared));
}

void launch_kernels(std::span<const Bound> launches, int device_index) {
  const Stream stream = current_stream(device_index);
  with_any_arguments(launches, stream, [&](const device::LaunchShape& shape, void** args) {
    launch(function_of(*launches.front().launch), shape, stream, args);
  });
}

std::unique_ptr<device::Graph> record_graph(int device_index, std::size_t steps, std::int64_t count,
                                            const std::function<void(std::size_t)>& enqueue) {
  const Stream stream = current_stream(device_index);
  const auto words = static_cast<std::uint64_t>(std::max<std::int64_t>(count, 1));
  auto graph = std::make_unique<CudaGraph>(allocate(4 * words, stream), stream);
  return graph->record(steps, words, enqueue) ? std::unique_ptr<device::Graph>(std::move(graph)) : nullptr;
}

}  // namespace kiln::cuda
