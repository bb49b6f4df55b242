// Steps of a plan on a GPU: enqueued on the calling thread's stream.
#pragma once

#include "device/cuda/graph.h"
#include "device/cuda/stream.h"
#include "engine/plan.h"

#include <cstddef>
#include <span>
#include <vector>

namespace kiln::engine {

/// While one lives, what this thread enqueues uses this memory for workspaces and counters, not its stream's:
/// for work that will be enqueued again. `counters` are zero, as many as the greatest step needs.
class FixedMemory {
 public:
  FixedMemory(std::byte* workspace, std::byte* counters);
  ~FixedMemory();
  FixedMemory(const FixedMemory&) = delete;
  FixedMemory& operator=(const FixedMemory&) = delete;

 private:
  friend std::byte* fixed_workspace();
  friend std::byte* fixed_counters();
  std::byte* workspace_;
  std::byte* counters_;
};
/// The workspace of the FixedMemory in force, or null.
std::byte* fixed_workspace();

/// A step of a graph.
struct GraphStep {
  cuda::Graph& graph;
  std::size_t step;
};

/// Addresses of the launch's buffers (those of Scratch are not looked at) and values of its slots. Enqueues
/// the launch, or gives the step that it was recorded as these arguments. DeviceError.
void launch_on_gpu(const Launch& launch, void* const* buffers, const std::uint64_t* slots, int device,
                   const GraphStep* recorded = nullptr);

/// One launch of a kernel for several sets of arguments. Pre: all launches have one kernel, made for at least
/// so many.
class GpuInstances {
 public:
  GpuInstances(std::span<const Launch> launches, int device);
  /// The next launch's arguments, as launch_on_gpu takes them.
  void add(const Launch& launch, void* const* buffers, const std::uint64_t* slots);
  /// As launch_on_gpu. Pre: every launch was added.
  void launch(const GraphStep* recorded = nullptr);

 private:
  std::span<const Launch> launches_;
  cuda::Stream stream_;
  std::vector<std::byte>& table_;
  std::byte* arrivals_ = nullptr;
  std::size_t set_bytes_ = 0, added_ = 0;
  std::uint32_t blocks_ = 0;
};

}  // namespace kiln::engine
