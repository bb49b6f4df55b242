// Work that was recorded once and is enqueued again as a whole, which costs the host and the device less than one launch
// after the other.
#pragma once

#include "backend/cuda/stream.h"

#include <functional>
#include <utility>

struct CUgraphExec_st;

namespace kiln::cuda {

class Graph {
 public:
  Graph() = default;  ///< none
  Graph(Graph&& o) noexcept : device_(o.device_), handle_(std::exchange(o.handle_, nullptr)) {}
  Graph& operator=(Graph&& o) noexcept;
  ~Graph();

  explicit operator bool() const { return handle_; }
  /// Enqueues all of it, on any stream of its device. Not from two threads at once. DeviceError.
  void launch(Stream stream) const;

 private:
  friend Graph capture(int, const std::function<void()>&);
  int device_ = 0;
  CUgraphExec_st* handle_ = nullptr;
};

/// What `enqueue` puts on the thread's current stream of the device, which is one of its own meanwhile: addresses and other
/// arguments are those of now, and nothing runs. `enqueue` must neither wait nor allocate. None where the driver
/// has no graphs or refuses; what `enqueue` throws is taken as a refusal.
Graph capture(int device, const std::function<void()>& enqueue);

}  // namespace kiln::cuda
