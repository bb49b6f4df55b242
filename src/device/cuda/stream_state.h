// What StreamState holds, for the .cpp files of this directory.
#pragma once

#include "device/cuda/stream.h"

#include <atomic>
#include <cstdint>

namespace kiln::cuda {

struct PoolLists;  // pool.cpp

/// Immortal.
struct StreamState {
  int device = 0;
  /// Of the device's own stream once this one is retired: its user destroys it, while buffers and counters
  /// still name it as the one that used them last.
  std::atomic<CUstream_st*> handle{nullptr};
  std::uint64_t id = 0;  // of the driver: handles may come again after a stream was destroyed
  std::atomic<bool> retired{false};
  PoolLists* lists = nullptr;  // its cached memory; under the pool's mutex
};

}  // namespace kiln::cuda
