// Work that was recorded once and is enqueued again as a whole, which costs the host and the device less than
// one launch after the other.
#pragma once

#include "device/cuda/module.h"
#include "device/cuda/stream.h"

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

struct CUgraph_st;
struct CUgraphExec_st;
struct CUgraphNode_st;

namespace kiln::cuda {

class Graph {
 public:
  Graph() = default;  ///< none
  Graph(Graph&& o) noexcept
      : device_(o.device_),
        nodes_(std::move(o.nodes_)),
        recorded_(std::exchange(o.recorded_, nullptr)),
        handle_(std::exchange(o.handle_, nullptr)) {}
  Graph& operator=(Graph&& o) noexcept;
  ~Graph();

  explicit operator bool() const { return handle_; }
  /// Enqueues all of it, on any stream of its device. Not from two threads at once. DeviceError.
  void launch(Stream stream) const;
  /// Other arguments for a step that was one launch of this kernel in this shape: those of the graph's
  /// launches from now on. Pre: graphs_change(). Not from two threads at once. DeviceError.
  void set_arguments(std::size_t step, const Function& function, const LaunchShape& shape, void** params);

 private:
  friend Graph capture(int, const std::function<void(std::size_t)>&, std::size_t);
  int device_ = 0;
  std::vector<CUgraphNode_st*> nodes_;  // of the steps, the last where there are several
  CUgraph_st* recorded_ = nullptr;      // whose the nodes are
  CUgraphExec_st* handle_ = nullptr;
};

/// Whether the driver lets arguments of a graph's launches be changed.
bool graphs_change();

/// What `enqueue` puts on the thread's current stream of the device in `steps` calls, with each step's
/// number. The stream is one of its own meanwhile: addresses and other arguments are those of now, and
/// nothing runs. `enqueue` must neither wait nor allocate. None where the driver has no graphs or refuses;
/// what `enqueue` throws is taken as a refusal.
Graph capture(int device, const std::function<void(std::size_t)>& enqueue, std::size_t steps = 1);

}  // namespace kiln::cuda
