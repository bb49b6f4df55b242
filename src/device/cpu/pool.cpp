// A block is a Buffer header with what the pool needs to know after it. Small and medium blocks keep their
// data 64 bytes behind the header and keep the header for life: allocating one pops a list and sets a count.
// Large blocks have their data apart (2 MiB aligned) and their headers come from the small list.
//
// Counters are per thread and summed when asked for: in_use may be negative in a thread that frees what
// another allocated.
#include "device/cpu/pool.h"

#include "device/cpu/host_limits.h"
#include "support/check.h"
#include "support/log.h"
#include "support/size_class.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) static_cast<void>(0)
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) static_cast<void>(0)
#endif

namespace kiln::cpu {
namespace {

constexpr std::uint64_t kHeader = 64;
constexpr std::uint64_t kHuge = 2 << 20;
constexpr std::uint64_t kLocalBytes = 4 << 20;  // a thread keeps at most this much of one class…
constexpr std::uint32_t kLocalBlocks = 256;     // …and this many blocks

struct Block : ir::Buffer {
  Block* next = nullptr;  // in a free list
  std::uint32_t cls = 0;
};
static_assert(sizeof(Block) <= kHeader);

/// A large block has two more links: its place in the list of all cached large blocks, oldest first.
struct LargeBlock : Block {
  LargeBlock* previous_in_class = nullptr;
  LargeBlock* older = nullptr;
  LargeBlock* newer = nullptr;
};
constexpr std::uint64_t kLargeHeader = 128;
static_assert(sizeof(LargeBlock) <= kLargeHeader);

LargeBlock* as_large(Block* block) { return static_cast<LargeBlock*>(block); }

struct Counters {
  std::atomic<std::int64_t> in_use{0};
  std::atomic<std::uint64_t> allocations{0};
};

/// Adds without a locked instruction: only the owning thread writes.
template <class T, class V>
void add(std::atomic<T>& counter, V value) {
  counter.store(counter.load(std::memory_order_relaxed) + static_cast<T>(value), std::memory_order_relaxed);
}

struct Local {
  struct List {
    Block* head;
    std::uint32_t count;
  };
  enum class State : std::uint8_t { New, Live, Ended };
  List lists[kLocalClasses];
  Counters counters;
  State state;
  Local* next;  // all live threads', under the pool's mutex
  Local* previous;
};
constinit thread_local Local local{};

class Pool {
 public:
  Pool() : limit_(cpu::memory_limit()) {}

  std::mutex mutex;

  // All below: caller holds the mutex.

  /// Moves up to `wanted` blocks of a local class into `list`; at least one. Throws DeviceError.
  void refill(Local::List& list, int cls, std::uint32_t wanted) {
    Shared& shared = shared_[cls];
    while (list.count < wanted && shared.head) {
      Block* block = std::exchange(shared.head, shared.head->next);
      shared.count -= 1;
      block->next = std::exchange(list.head, block);
      list.count += 1;
    }
    if (list.count > 0) return;
    if (cls >= kSmallClasses) {
      const std::uint64_t bytes = class_bytes(cls) + kHeader;
      push(list, make_block(map(bytes, false), cls));
      return;
    }
    for (std::uint32_t i = 0; i < wanted; ++i) {
      if (i > 0 && chunk_left_ < class_bytes(cls) + kHeader) break;  // the next chunk may never be needed
      push(list, carve(cls));
    }
  }

  void give(Block* chain, int cls) {
    while (chain) {
      Block* block = std::exchange(chain, chain->next);
      block->next = std::exchange(shared_[cls].head, block);
      shared_[cls].count += 1;
    }
  }

  LargeBlock* take_large(int cls) {
    // One class above costs no more than another eighth and saves the page faults.
    for (int c = cls; c <= std::min(cls + 1, kClasses - 1); ++c)
      if (LargeBlock* block = as_large(shared_[c].head)) {
        unlink(block);
        return block;
      }
    return nullptr;
  }

  LargeBlock* make_large(int cls) {
    const std::uint64_t bytes = class_bytes(cls);
    std::byte* data = map(bytes, true);
    LargeBlock* block = large_header();
    block->cls = static_cast<std::uint32_t>(cls);
    block->data = data;
    block->bytes = bytes;
    return block;
  }

  void cache_large(LargeBlock* block) {
    Shared& shared = shared_[block->cls];
    block->next = shared.head;
    block->previous_in_class = nullptr;
    if (shared.head) as_large(shared.head)->previous_in_class = block;
    shared.head = block;
    block->newer = nullptr;
    block->older = std::exchange(newest_, block);
    (block->older ? block->older->newer : oldest_) = block;
    cached_large_ += block->bytes;
    if (cached_large_ > limit_ / 2) drop_large(limit_ / 2);
  }

  std::uint64_t trim(std::uint64_t keep) {
    const std::uint64_t before = held_;
    drop_large(keep);
    for (int cls = kSmallClasses; cls < kLocalClasses; ++cls) {
      Block* chain = std::exchange(shared_[cls].head, nullptr);
      shared_[cls].count = 0;
      while (chain) {
        Block* block = std::exchange(chain, chain->next);
        unmap(reinterpret_cast<std::byte*>(block), class_bytes(cls) + kHeader);
      }
    }
    return before - held_;
  }

  void set_limit(std::uint64_t bytes) {
    limit_ = bytes ? bytes : cpu::memory_limit();
    drop_large(limit_ / 2);
  }

  void enter(Local& thread) {
    thread.previous = nullptr;
    thread.next = threads_;
    if (threads_) threads_->previous = &thread;
    threads_ = &thread;
  }

  void leave(Local& thread) {
    (thread.previous ? thread.previous->next : threads_) = thread.next;
    if (thread.next) thread.next->previous = thread.previous;
    add(ended_.in_use, thread.counters.in_use.load(std::memory_order_relaxed));
    add(ended_.allocations, thread.counters.allocations.load(std::memory_order_relaxed));
  }

  PoolStatistics statistics() const {
    std::int64_t in_use = ended_.in_use.load(std::memory_order_relaxed);
    std::uint64_t allocations = ended_.allocations.load(std::memory_order_relaxed);
    for (const Local* t = threads_; t; t = t->next) {
      in_use += t->counters.in_use.load(std::memory_order_relaxed);
      allocations += t->counters.allocations.load(std::memory_order_relaxed);
    }
    PoolStatistics s;
    s.in_use = static_cast<std::uint64_t>(std::max<std::int64_t>(in_use, 0));
    s.cached = held_ > s.in_use ? held_ - s.in_use : 0;
    s.limit = limit_;
    s.system_allocations = maps_;
    s.allocations = allocations;
    return s;
  }

  Counters& ended() { return ended_; }

  /// Header memory of an unmapped or freed large block.
  void give_header(LargeBlock* block) {
    block->next = headers_;
    headers_ = block;
  }

 private:
  struct Shared {
    Block* head = nullptr;
    std::uint64_t count = 0;
  };

  static void push(Local::List& list, Block* block) {
    block->next = std::exchange(list.head, block);
    list.count += 1;
  }

  static void free_local(ir::Buffer* buffer);
  static void free_large(ir::Buffer* buffer);

  static Block* make_block(std::byte* memory, int cls) {
    auto* block = new (memory) Block;
    block->cls = static_cast<std::uint32_t>(cls);
    block->data = memory + kHeader;
    block->bytes = class_bytes(cls);
    block->free = free_local;
    return block;
  }

  Block* carve(int cls) {
    const std::uint64_t bytes = class_bytes(cls) + kHeader;
    if (chunk_left_ < bytes) {
      // What is left of the old chunk becomes blocks of the largest classes that fit.
      while (chunk_left_ >= kLeastBlock + kHeader) {
        int fit = std::min(size_class(chunk_left_ - kHeader), kSmallClasses - 1);
        if (class_bytes(fit) + kHeader > chunk_left_) --fit;
        Block* block = make_block(take_chunk(class_bytes(fit) + kHeader), fit);
        block->next = nullptr;
        give(block, fit);
      }
      chunk_ = map(kHuge, true);
      chunk_left_ = kHuge;
    }
    return make_block(take_chunk(bytes), cls);
  }

  std::byte* take_chunk(std::uint64_t bytes) {
    chunk_left_ -= bytes;
    return std::exchange(chunk_, chunk_ + bytes);
  }

  LargeBlock* large_header() {
    if (!headers_) {
      std::byte* page = map(4096, false);
      for (std::uint64_t at = 0; at < 4096; at += kLargeHeader) {
        auto* block = new (page + at) LargeBlock;
        block->free = free_large;
        give_header(block);
      }
    }
    LargeBlock* block = as_large(headers_);
    headers_ = block->next;
    return block;
  }

  void unlink(LargeBlock* block) {
    Shared& shared = shared_[block->cls];
    (block->previous_in_class ? block->previous_in_class->next : shared.head) = block->next;
    if (block->next) as_large(block->next)->previous_in_class = block->previous_in_class;
    (block->older ? block->older->newer : oldest_) = block->newer;
    (block->newer ? block->newer->older : newest_) = block->older;
    cached_large_ -= block->bytes;
  }

  void drop_large(std::uint64_t keep) {
    while (cached_large_ > keep) {
      LargeBlock* block = oldest_;
      unlink(block);
      unmap(block->data, block->bytes);
      give_header(block);
    }
  }

  /// Fresh memory; `huge` aligns it to 2 MiB and asks for huge pages, otherwise it is touched at once. One
  /// retry.
  std::byte* map(std::uint64_t bytes, bool huge) {
    std::byte* memory = held_ + bytes <= limit_ ? try_map(bytes, huge) : nullptr;
    if (!memory) {
      const std::uint64_t returned = trim(0);
      if (held_ + bytes <= limit_) memory = try_map(bytes, huge);
      if (!memory) {
        const std::uint64_t room = limit_ > held_ ? limit_ - held_ : 0;
        throw DeviceError(cat("[memory] out of memory: ", bytes, " bytes wanted, ", room,
                              " available (limit ", limit_, ", ", held_, " held after ", returned,
                              " cached bytes were returned)"));
      }
    }
    held_ += bytes;
    maps_ += 1;
    if (log_enabled(Topic::Memory))
      log(Topic::Memory, cat("cpu: ", bytes, " bytes from the system, ", held_, " held"));
    return memory;
  }

  static std::byte* try_map(std::uint64_t bytes, bool huge) {
    const std::uint64_t padded = huge ? bytes + kHuge : bytes;
    void* raw = mmap(nullptr, padded, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | (huge ? 0 : MAP_POPULATE), -1, 0);
    if (raw == MAP_FAILED) return nullptr;
    auto* memory = static_cast<std::byte*>(raw);
    if (!huge) return memory;
    auto* aligned =
        reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(memory) + kHuge - 1) & ~(kHuge - 1));
    const std::uint64_t pages = (bytes + 4095) / 4096 * 4096;
    if (aligned > memory) munmap(memory, static_cast<std::size_t>(aligned - memory));
    if (const auto tail = static_cast<std::size_t>(memory + padded - (aligned + pages)))
      munmap(aligned + pages, tail);
    madvise(aligned, bytes, MADV_HUGEPAGE);  // a hint: without huge pages everything still works
    return aligned;
  }

  void unmap(std::byte* memory, std::uint64_t bytes) {
    ASAN_UNPOISON_MEMORY_REGION(memory, bytes);
    munmap(memory, bytes);
    held_ -= bytes;
  }

  Shared shared_[kClasses];
  LargeBlock* oldest_ = nullptr;
  LargeBlock* newest_ = nullptr;
  Block* headers_ = nullptr;
  std::byte* chunk_ = nullptr;
  std::uint64_t chunk_left_ = 0;
  std::uint64_t cached_large_ = 0, held_ = 0, limit_, maps_ = 0;
  Counters ended_;  // of threads that have ended, and of frees after a thread's end
  Local* threads_ = nullptr;
};

Pool& pool() {
  static Pool* const instance = [] {
    auto* made = new Pool;
    // A fork while another thread holds the mutex must not leave the child's copy locked.
    pthread_atfork([] { pool().mutex.lock(); }, [] { pool().mutex.unlock(); }, [] { pool().mutex.unlock(); });
    return made;
  }();
  return *instance;
}

/// Hands the ending thread's blocks to the shared lists. Later frees in this thread go there directly.
struct AtThreadEnd {
  ~AtThreadEnd() {
    const std::lock_guard lock(pool().mutex);
    for (int cls = 0; cls < kLocalClasses; ++cls) {
      pool().give(std::exchange(local.lists[cls].head, nullptr), cls);
      local.lists[cls].count = 0;
    }
    pool().leave(local);
    local.state = Local::State::Ended;
  }
  void touch() {}
};

/// The calling thread's registration; false when the thread is past its end.
bool thread_alive() {
  if (local.state == Local::State::Live) [[likely]]
    return true;
  if (local.state == Local::State::Ended) return false;
  static thread_local AtThreadEnd at_end;
  at_end.touch();
  const std::lock_guard lock(pool().mutex);
  pool().enter(local);
  local.state = Local::State::Live;
  return true;
}

std::uint32_t local_cap(int cls) {
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(kLocalBytes / class_bytes(cls), 2, kLocalBlocks));
}

[[gnu::noinline]] Block* allocate_slow(int cls) {
  if (thread_alive()) {
    Local::List& list = local.lists[cls];
    if (!list.head) {
      const std::lock_guard lock(pool().mutex);
      pool().refill(list, cls, std::max(1u, std::min(local_cap(cls) / 2, 32u)));
    }
    list.count -= 1;
    Block* block = std::exchange(list.head, list.head->next);
    add(local.counters.in_use, block->bytes);
    add(local.counters.allocations, 1);
    return block;
  }
  Local::List one{};
  const std::lock_guard lock(pool().mutex);
  pool().refill(one, cls, 1);
  add(pool().ended().in_use, one.head->bytes);
  add(pool().ended().allocations, 1);
  return one.head;
}

[[gnu::noinline]] void free_slow(Block* block, int cls) {
  if (!thread_alive()) {
    const std::lock_guard lock(pool().mutex);
    block->next = nullptr;
    pool().give(block, cls);
    add(pool().ended().in_use, -static_cast<std::int64_t>(block->bytes));
    return;
  }
  Local::List& list = local.lists[cls];
  add(local.counters.in_use, -static_cast<std::int64_t>(block->bytes));
  block->next = std::exchange(list.head, block);
  list.count += 1;
  if (list.count <= local_cap(cls)) return;
  // Keep the half that was used last; the rest goes to the shared list in one go.
  Block* last = list.head;
  const std::uint32_t keep = list.count / 2;
  for (std::uint32_t i = 1; i < keep; ++i) last = last->next;
  Block* spill = std::exchange(last->next, nullptr);
  list.count = keep;
  const std::lock_guard lock(pool().mutex);
  pool().give(spill, cls);
}

void Pool::free_local(ir::Buffer* buffer) {
  auto* block = static_cast<Block*>(buffer);
  const int cls = static_cast<int>(block->cls);
  ASAN_POISON_MEMORY_REGION(block->data, block->bytes);
  Local::List& list = local.lists[cls];
  if (local.state != Local::State::Live || list.count >= local_cap(cls)) [[unlikely]]
    return free_slow(block, cls);
  block->next = list.head;
  list.head = block;
  list.count += 1;
  add(local.counters.in_use, -static_cast<std::int64_t>(block->bytes));
}

void Pool::free_large(ir::Buffer* buffer) {
  auto* block = static_cast<LargeBlock*>(buffer);
  ASAN_POISON_MEMORY_REGION(block->data, block->bytes);
  Pool& p = pool();
  const std::lock_guard lock(p.mutex);
  add(p.ended().in_use, -static_cast<std::int64_t>(block->bytes));
  p.cache_large(block);
}

Block* allocate_large(std::uint64_t bytes) {
  if (bytes > kLargestBlock)
    throw DeviceError(cat("[memory] out of memory: ", bytes, " bytes wanted, above the address space"));
  const int cls = size_class(bytes);
  Pool& p = pool();
  const std::lock_guard lock(p.mutex);
  LargeBlock* block = p.take_large(cls);
  if (!block) block = p.make_large(cls);
  add(p.ended().in_use, block->bytes);
  add(p.ended().allocations, 1);
  return block;
}

}  // namespace

ir::Buffer* allocate(std::uint64_t bytes) {
  Block* block;
  if (bytes <= kLocalMax) [[likely]] {
    const int cls = size_class(bytes);
    Local::List& list = local.lists[cls];
    block = list.head;
    if (block) [[likely]] {
      list.head = block->next;
      list.count -= 1;
      add(local.counters.in_use, block->bytes);
      add(local.counters.allocations, 1);
    } else {
      block = allocate_slow(cls);
    }
  } else {
    block = allocate_large(bytes);
  }
  ASAN_UNPOISON_MEMORY_REGION(block->data, block->bytes);
  block->refs.store(1, std::memory_order_relaxed);
  block->writable = true;
  return block;
}

PoolStatistics pool_statistics() {
  const std::lock_guard lock(pool().mutex);
  return pool().statistics();
}

std::uint64_t trim(std::uint64_t keep) {
  if (thread_alive()) {
    const std::lock_guard lock(pool().mutex);
    for (int cls = kSmallClasses; cls < kLocalClasses; ++cls) {
      pool().give(std::exchange(local.lists[cls].head, nullptr), cls);
      local.lists[cls].count = 0;
    }
  }
  const std::lock_guard lock(pool().mutex);
  const std::uint64_t returned = pool().trim(keep);
  if (log_enabled(Topic::Memory)) log(Topic::Memory, cat("trim returned ", returned, " bytes"));
  return returned;
}

void set_memory_limit(std::uint64_t bytes) {
  const std::lock_guard lock(pool().mutex);
  pool().set_limit(bytes);
}

}  // namespace kiln::cpu
