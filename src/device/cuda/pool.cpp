// Invariants, under the pool's mutex: a block is either given out or in exactly one stream's list of its
// class; a chunk's `live` counts its blocks that are given out; memory of a chunk beyond `used` was never
// given out.
#include "device/cuda/pool.h"

#include <cuda.h>

#include "device/cuda/driver.h"
#include "device/cuda/driver_api.h"
#include "device/cuda/stream_state.h"
#include "support/check.h"
#include "support/log.h"
#include "support/size_class.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace kiln::cuda {

namespace {

constexpr std::uint64_t kAlignment = 256;
constexpr std::uint64_t kGrain = 2 << 20;      // of the driver's own allocations
constexpr std::uint64_t kCarvedMax = 8 << 20;  // larger blocks have an allocation of their own
constexpr std::uint64_t kSmallChunk = 2 << 20, kMediumChunk = 32 << 20;
static_assert(kSmallChunk >= kLocalMax && kMediumChunk % kGrain == 0);

constexpr std::uint64_t round_up(std::uint64_t n, std::uint64_t to) { return (n + to - 1) / to * to; }

/// Memory from the driver that blocks are carved from.
struct Chunk {
  std::byte* base = nullptr;
  std::uint64_t bytes = 0, used = 0;
  std::uint64_t live = 0;
};

struct PoolBlock : Block {
  PoolBlock* next = nullptr;
  PoolBlock* previous = nullptr;
  Chunk* chunk = nullptr;  // null: an allocation of its own
  int cls = 0;
  bool exact = false;  // never cached
};

std::atomic<bool> exact_blocks{false};

bool fits(const PoolBlock& block, std::uint64_t bytes) {
  return block.bytes >= bytes && (block.chunk || block.bytes - bytes <= std::max(bytes / 8, kGrain));
}

}  // namespace

/// The cached blocks of one stream.
struct PoolLists {
  std::array<PoolBlock*, kClasses> heads{};

  void push(PoolBlock* block) {
    PoolBlock*& head = heads[static_cast<std::size_t>(block->cls)];
    block->previous = nullptr;
    block->next = head;
    if (head) head->previous = block;
    head = block;
  }
  void remove(PoolBlock* block) {
    (block->previous ? block->previous->next : heads[static_cast<std::size_t>(block->cls)]) = block->next;
    if (block->next) block->next->previous = block->previous;
  }
  /// Takes a block of at least `bytes` that wastes little.
  PoolBlock* take(int cls, std::uint64_t bytes) {
    const int last = bytes > kCarvedMax ? std::min(cls + 1, kClasses - 1) : cls;
    for (int c = cls; c <= last; ++c)
      for (PoolBlock* b = heads[static_cast<std::size_t>(c)]; b; b = b->next)
        if (fits(*b, bytes)) {
          remove(b);
          return b;
        }
    return nullptr;
  }
};

namespace {

class Pool {
 public:
  explicit Pool(int device) : device_(device) {}

  Block* allocate(std::uint64_t wanted, StreamState* stream) {
    const std::uint64_t bytes = rounded(wanted);
    const int cls = size_class(bytes);
    const std::lock_guard lock(mutex_);
    PoolBlock* block = nullptr;
    if (exact_blocks.load(std::memory_order_relaxed)) [[unlikely]]
      block = make_exact(std::max(wanted, std::uint64_t{1}), cls);
    else
      block = lists(stream).take(cls, bytes);
    if (!block) [[unlikely]]
      block = obtain(wanted, bytes, cls, stream);
    if (block->chunk) block->chunk->live += 1;
    in_use_ += block->bytes;
    peak_ = std::max(peak_, in_use_);
    allocations_ += 1;
    return block;
  }

  void release(PoolBlock* block, StreamState* stream) {
    const std::lock_guard lock(mutex_);
    if (block->chunk) block->chunk->live -= 1;
    in_use_ -= block->bytes;
    if (!block->exact) [[likely]]
      return lists(stream).push(block);
    try {
      const Enter in(device_);
      return_to_driver(in, block->data, block->bytes);
    } catch (const DeviceError&) {  // the device is lost, and its memory with it
    }
    delete block;
  }

  PoolStatistics statistics() {
    const std::lock_guard lock(mutex_);
    return {in_use_, peak_, held_, limit(), driver_allocations_, allocations_};
  }

  std::uint64_t trim(std::uint64_t keep) {
    const std::lock_guard lock(mutex_);
    return flush(keep);
  }

  void set_limit(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    limit_ = bytes;
    if (held_ > limit()) flush(limit());
  }

  void hand_over(StreamState* from, StreamState* to) {
    const std::lock_guard lock(mutex_);
    if (!from->lists) return;
    for (PoolBlock*& head : from->lists->heads)
      while (PoolBlock* block = head) {
        from->lists->remove(block);
        lists(to).push(block);
      }
    std::erase(streams_, from);
    delete std::exchange(from->lists, nullptr);
  }

 private:
  /// Carved blocks have their class's size, so that all of a class are alike; others the least the driver
  /// gives.
  static std::uint64_t rounded(std::uint64_t bytes) {
    if (bytes > kCarvedMax) return round_up(std::min(bytes, kLargestBlock), kGrain);
    return round_up(class_bytes(size_class(round_up(std::max(bytes, std::uint64_t{1}), kAlignment))),
                    kAlignment);
  }

  PoolLists& lists(StreamState* stream) {
    if (!stream->lists) [[unlikely]] {
      streams_.push_back(stream);
      stream->lists = new PoolLists;
    }
    return *stream->lists;
  }

  std::uint64_t limit() const { return limit_ ? limit_ : device(device_).memory_bytes; }

  /// The way of a miss: other streams that rest, fresh memory, other streams that work, and last what is
  /// cached returned.
  PoolBlock* obtain(std::uint64_t wanted, std::uint64_t bytes, int cls, StreamState* stream) {
    if (PoolBlock* block = take_from_others(cls, bytes, stream, /*busy=*/false)) return block;
    if (PoolBlock* block = make(bytes, cls, stream)) return block;
    if (PoolBlock* block = take_from_others(cls, bytes, stream, /*busy=*/true)) return block;
    const std::uint64_t returned = flush(0);
    if (PoolBlock* block = make(bytes, cls, stream)) return block;
    out_of_memory(wanted, returned);
  }

  PoolBlock* take_from_others(int cls, std::uint64_t bytes, StreamState* stream, bool busy) {
    for (StreamState* other : streams_) {
      if (other == stream) continue;
      PoolBlock* block = other->lists->take(cls, bytes);
      if (!block) continue;
      try {
        if (busy) order(other, stream);
        if (busy || idle(other)) return block;
      } catch (...) {
        other->lists->push(block);
        throw;
      }
      other->lists->push(block);
    }
    return nullptr;
  }

  PoolBlock* make_exact(std::uint64_t bytes, int cls) {
    std::byte* data = ask_driver(bytes);
    if (!data) return nullptr;
    PoolBlock* block = new_block(data, bytes, cls, nullptr);
    block->exact = true;
    return block;
  }

  /// A block of fresh memory, or null when there is none.
  PoolBlock* make(std::uint64_t bytes, int cls, StreamState* stream) {
    if (bytes > kCarvedMax) {
      std::byte* data = ask_driver(bytes);
      return data ? new_block(data, bytes, cls, nullptr) : nullptr;
    }
    const bool small = bytes <= kLocalMax;
    Chunk*& current = current_[small];
    if (!current || current->bytes - current->used < bytes) {
      const std::uint64_t size = small ? kSmallChunk : kMediumChunk;
      std::byte* base = ask_driver(size);
      if (!base) return nullptr;
      if (current) carve_rest(*current, stream);
      chunks_.push_back(std::make_unique<Chunk>(Chunk{base, size}));
      current = chunks_.back().get();
    }
    return carve(*current, bytes, cls);
  }

  PoolBlock* carve(Chunk& chunk, std::uint64_t bytes, int cls) {
    std::byte* data = chunk.base + std::exchange(chunk.used, chunk.used + bytes);
    return new_block(data, bytes, cls, &chunk);
  }

  /// What is left of a chunk becomes blocks of the largest classes that fit.
  void carve_rest(Chunk& chunk, StreamState* stream) {
    while (chunk.bytes - chunk.used >= kAlignment) {
      const std::uint64_t left = chunk.bytes - chunk.used;
      int cls = size_class(left);
      while (round_up(class_bytes(cls), kAlignment) > left) --cls;
      lists(stream).push(carve(chunk, rounded(class_bytes(cls)), cls));
    }
  }

  PoolBlock* new_block(std::byte* data, std::uint64_t bytes, int cls, Chunk* chunk) {
    auto* block = new PoolBlock;
    block->data = data;
    block->bytes = bytes;
    block->device = device_;
    block->chunk = chunk;
    block->cls = cls;
    return block;
  }

  std::byte* ask_driver(std::uint64_t bytes) {
    if (bytes > limit() || held_ > limit() - bytes) return nullptr;
    const Enter in(device_);
    CUdeviceptr data = 0;
    const CUresult result = api().cuMemAlloc(&data, bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) return nullptr;
    in.check(result, "cuMemAlloc");
    held_ += bytes;
    driver_allocations_ += 1;
    if (log_enabled(Topic::Memory))
      log(Topic::Memory, cat("cuda:", device_, ": ", bytes, " bytes from the driver, ", held_, " held"));
    return reinterpret_cast<std::byte*>(data);
  }

  void return_to_driver(const Enter& in, std::byte* data, std::uint64_t bytes) {
    KILN_CU(in, cuMemFree, reinterpret_cast<CUdeviceptr>(data));
    held_ -= bytes;
  }

  std::uint64_t flush(std::uint64_t keep) {
    const std::uint64_t before = held_;
    if (before <= keep) return 0;
    synchronize_device(device_);  // the driver may free memory under a running kernel
    const Enter in(device_);
    flush_own(in, keep);
    if (held_ > keep) flush_chunks(in, keep);
    if (log_enabled(Topic::Memory))
      log(Topic::Memory, cat("cuda:", device_, " returned ", before - held_, " bytes"));
    return before - held_;
  }

  /// Large blocks, the largest first.
  void flush_own(const Enter& in, std::uint64_t keep) {
    for (int cls = kClasses - 1; cls > size_class(kCarvedMax); --cls)
      for (StreamState* stream : streams_)
        while (PoolBlock* block =
                   held_ > keep ? stream->lists->heads[static_cast<std::size_t>(cls)] : nullptr) {
          return_to_driver(in, block->data, block->bytes);
          stream->lists->remove(block);
          delete block;
        }
  }

  /// Chunks none of whose blocks is given out.
  void flush_chunks(const Enter& in, std::uint64_t keep) {
    std::vector<Chunk*> dead;
    std::uint64_t bytes = 0;
    for (const auto& chunk : chunks_)
      if (chunk->live == 0 && held_ - bytes > keep) {
        dead.push_back(chunk.get());
        bytes += chunk->bytes;
      }
    if (dead.empty()) return;
    std::sort(dead.begin(), dead.end());
    const auto is_dead = [&](Chunk* chunk) { return std::binary_search(dead.begin(), dead.end(), chunk); };
    for (StreamState* stream : streams_)
      for (PoolBlock* head : stream->lists->heads)
        for (PoolBlock *block = head, *next = nullptr; block; block = next) {
          next = block->next;
          if (!block->chunk || !is_dead(block->chunk)) continue;
          stream->lists->remove(block);
          delete block;
        }
    for (Chunk*& current : current_)
      if (current && is_dead(current)) current = nullptr;
    for (Chunk* chunk : dead) return_to_driver(in, chunk->base, chunk->bytes);
    std::erase_if(chunks_, [&](const auto& chunk) { return is_dead(chunk.get()); });
  }

  [[noreturn]] void out_of_memory(std::uint64_t wanted, std::uint64_t returned) {
    const MemoryInfo info = memory_info(device_);
    throw DeviceError(cat("[memory] out of memory on cuda:", device_, ": ", wanted, " bytes wanted, ",
                          info.free, " of ", info.total, " free; Kiln holds ", held_, " (", in_use_,
                          " in use, limit ", limit(), ") after ", returned, " cached bytes were returned"));
  }

  const int device_;
  std::mutex mutex_;
  std::vector<StreamState*> streams_;  // those with lists
  std::vector<std::unique_ptr<Chunk>> chunks_;
  Chunk* current_[2] = {};  // [small]
  std::uint64_t in_use_ = 0, peak_ = 0, held_ = 0, driver_allocations_ = 0, allocations_ = 0;
  std::uint64_t limit_ = 0;  // 0: the device's memory
};

constexpr std::size_t kMaxDevices = 64;

Pool& pool(int index) {
  static std::array<std::atomic<Pool*>, kMaxDevices>* const pools =
      new std::array<std::atomic<Pool*>, kMaxDevices>{};
  device(index);
  std::atomic<Pool*>& slot = (*pools)[static_cast<std::size_t>(index)];
  if (Pool* known = slot.load(std::memory_order_acquire)) return *known;
  auto made = std::make_unique<Pool>(index);
  Pool* none = nullptr;
  return slot.compare_exchange_strong(none, made.get()) ? *made.release() : *none;
}

}  // namespace

Block* allocate(std::uint64_t bytes, Stream stream) {
  if (ended()) [[unlikely]] {
    const Enter says_why(stream->device);  // before a lock that a fork may have left closed
  }
  return pool(stream->device).allocate(bytes, stream);
}

void release(Block* block, Stream stream) noexcept {
  if (ended()) return;
  pool(block->device).release(static_cast<PoolBlock*>(block), stream);
}

PoolStatistics pool_statistics(int device_index) { return pool(device_index).statistics(); }

std::uint64_t trim(int device_index, std::uint64_t keep) {
  const Enter in(device_index);
  return pool(device_index).trim(keep);
}

void set_memory_limit(int device_index, std::uint64_t bytes) {
  const Enter in(device_index);
  pool(device_index).set_limit(bytes);
}

void set_exact_blocks(bool exact) { exact_blocks.store(exact, std::memory_order_relaxed); }

void hand_over(Stream from, Stream to) {
  KILN_CHECK_THAT(from != to && from->device == to->device);
  pool(from->device).hand_over(from, to);
}

}  // namespace kiln::cuda
