#include "device/cuda/copy.h"

#include <cuda.h>

#include "device/cuda/driver.h"
#include "device/cuda/driver_api.h"
#include "support/check.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace kiln::cuda {
namespace {

constexpr std::uint64_t kDirectMax = 64 << 10;  // the driver's own staging of so little is as good
constexpr std::uint64_t kChunk = 2 << 20;
constexpr std::size_t kMostChunks = 32;  // made while others are under way
constexpr std::size_t kInFlight = 4;     // of one copy

CUdeviceptr address(const void* data) { return reinterpret_cast<CUdeviceptr>(data); }

/// Page-locked memory of one chunk; `busy` is when the device is done with it.
struct Staging {
  std::byte* data = nullptr;
  Event busy;
};

/// Chunks are made as needed, shared by all devices, kept until the process ends.
class StagingPool {
 public:
  Staging take(const Enter& in) {
    std::unique_lock lock(mutex_);
    // The oldest first: the likeliest to be done.
    if (!free_.empty() && (made_ >= kMostChunks || free_.front().busy.done())) {
      Staging out = std::move(free_.front());
      free_.pop_front();
      lock.unlock();
      out.busy.synchronize();
      out.busy = Event();
      return out;
    }
    Staging out;
    void* data = nullptr;
    KILN_CU(in, cuMemHostAlloc, &data, kChunk, CU_MEMHOSTALLOC_PORTABLE);
    out.data = static_cast<std::byte*>(data);
    made_ += 1;
    return out;
  }

  void give(Staging chunk) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(chunk));
  }

  std::uint64_t bytes() {
    const std::lock_guard lock(mutex_);
    return made_ * kChunk;
  }

 private:
  std::mutex mutex_;
  std::deque<Staging> free_;
  std::size_t made_ = 0;
};

StagingPool& staging() {
  static StagingPool* const instance = new StagingPool;
  return *instance;
}

/// Page-locked or managed: the device reads and writes it itself, whenever it comes to it.
bool is_known_to_driver(const Enter& in, const void* host) {
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
  unsigned type = 0;
  void* values[] = {&type};
  KILN_CU(in, cuPointerGetAttributes, 1, which, values, address(host));
  return type != 0;
}

}  // namespace

void copy_to_device(void* to, const void* from, std::uint64_t bytes, Stream stream) {
  if (bytes == 0) return;
  const Enter in(device_of(stream));
  const bool page_locked = is_known_to_driver(in, from);
  if (page_locked || bytes <= kDirectMax) {
    KILN_CU(in, cuMemcpyHtoDAsync, address(to), from, bytes, handle_of(stream));
    if (page_locked) record(stream).synchronize();
    return;
  }
  for (std::uint64_t at = 0; at < bytes; at += kChunk) {
    const std::uint64_t n = std::min(kChunk, bytes - at);
    Staging chunk = staging().take(in);
    std::memcpy(chunk.data, static_cast<const std::byte*>(from) + at, n);
    KILN_CU(in, cuMemcpyHtoDAsync, address(to) + at, chunk.data, n, handle_of(stream));
    chunk.busy = record(stream);
    staging().give(std::move(chunk));
  }
}

void copy_to_host(void* to, const void* from, std::uint64_t bytes, Stream stream) {
  if (bytes == 0) return;
  const Enter in(device_of(stream));
  if (bytes <= kDirectMax || is_known_to_driver(in, to)) {
    KILN_CU(in, cuMemcpyDtoHAsync, to, address(from), bytes, handle_of(stream));
    record(stream).synchronize();
    return;
  }
  struct Part {
    Staging chunk;
    std::uint64_t at, n;
  };
  std::deque<Part> under_way;
  const auto finish_one = [&] {
    Part part = std::move(under_way.front());
    under_way.pop_front();
    part.chunk.busy.synchronize();
    std::memcpy(static_cast<std::byte*>(to) + part.at, part.chunk.data, part.n);
    staging().give(std::move(part.chunk));
  };
  for (std::uint64_t at = 0; at < bytes; at += kChunk) {
    if (under_way.size() == kInFlight) finish_one();
    Part part{staging().take(in), at, std::min(kChunk, bytes - at)};
    KILN_CU(in, cuMemcpyDtoHAsync, part.chunk.data, address(from) + at, part.n, handle_of(stream));
    part.chunk.busy = record(stream);
    under_way.push_back(std::move(part));
  }
  while (!under_way.empty()) finish_one();
}

void copy_on_device(void* to, const void* from, std::uint64_t bytes, Stream stream) {
  if (bytes == 0) return;
  const Enter in(device_of(stream));
  KILN_CU(in, cuMemcpyDtoDAsync, address(to), address(from), bytes, handle_of(stream));
}

namespace {

/// Lets `device` reach the other's memory where the hardware can; copies work, slower, where it cannot.
void enable_peer(int device, int other) {
  static std::mutex* const mutex = new std::mutex;
  static std::set<std::pair<int, int>>* const asked = new std::set<std::pair<int, int>>;
  const std::lock_guard lock(*mutex);
  if (!asked->emplace(device, other).second) return;
  const Enter in(device);
  CUdevice from = 0, to = 0;
  int can = 0;
  KILN_CU(in, cuDeviceGet, &from, device);
  KILN_CU(in, cuDeviceGet, &to, other);
  KILN_CU(in, cuDeviceCanAccessPeer, &can, from, to);
  if (!can) return;
  const CUresult result = api().cuCtxEnablePeerAccess(primary_context(other), 0);
  if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) in.check(result, "cuCtxEnablePeerAccess");
}

}  // namespace

void copy_across(void* to, Stream to_stream, const void* from, Stream from_stream, std::uint64_t bytes) {
  if (bytes == 0) return;
  const int to_device = device_of(to_stream), from_device = device_of(from_stream);
  if (to_device != from_device) {
    enable_peer(to_device, from_device);
    enable_peer(from_device, to_device);
  }
  order(from_stream, to_stream);
  {
    const Enter in(to_device);
    KILN_CU(in, cuMemcpyPeerAsync, address(to), in.context(), address(from), primary_context(from_device),
            bytes, handle_of(to_stream));
  }
  order(to_stream, from_stream);
}

void fill(void* to, std::uint32_t pattern, int pattern_bytes, std::uint64_t count, Stream stream) {
  if (count == 0) return;
  const Enter in(device_of(stream));
  switch (pattern_bytes) {
    case 1: return KILN_CU(in, cuMemsetD8Async, address(to), pattern & 0xff, count, handle_of(stream));
    case 2: return KILN_CU(in, cuMemsetD16Async, address(to), pattern & 0xffff, count, handle_of(stream));
    case 4: return KILN_CU(in, cuMemsetD32Async, address(to), pattern, count, handle_of(stream));
  }
  KILN_CHECK_THAT(false, "pattern of ", pattern_bytes, " bytes");
}

std::uint64_t staging_bytes() { return staging().bytes(); }

}  // namespace kiln::cuda
