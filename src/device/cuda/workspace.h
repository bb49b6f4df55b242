// Memory for one call's kernels, which go to one stream.
#pragma once

#include "device/cuda/pool.h"

#include <cstdint>

namespace kiln::cuda {

class Workspace {
 public:
  /// DeviceError.
  Workspace(std::uint64_t bytes, Stream stream) : block_(allocate(bytes, stream)), stream_(stream) {}
  ~Workspace() { release(block_, stream_); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  std::byte* data() const { return block_->data; }

 private:
  Block* block_;
  Stream stream_;
};

}  // namespace kiln::cuda
