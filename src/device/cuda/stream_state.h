// What StreamState holds, for the .cpp files of this directory.
#pragma once

#include "device/cuda/stream.h"

#include <cstdint>

namespace kiln::cuda {

struct PoolLists;  // pool.cpp

/// Immortal.
struct StreamState {
  int device = 0;
  CUstream_st* handle = nullptr;
  std::uint64_t id = 0;        // of the driver: handles may come again after a stream was destroyed
  bool retired = false;        // under the registry's mutex
  PoolLists* lists = nullptr;  // its cached memory; under the pool's mutex
};

}  // namespace kiln::cuda
