// oneTBB underneath. A loop is T-1 helper tasks and the caller, each draining chunks from per-slot ranges; a
// helper that wakes late finds nothing left and costs nothing, so the loop never waits for a sleeping thread.
//
// Must not: let an exception cross a TBB frame, or wait inside a chunk (nested loops run inline), which is
// what keeps a thread's scratch memory in one user's hands.
#include "device/cpu/threads.h"

#include "device/cpu/host_limits.h"
#include "device/cpu/subnormals.h"
#include "support/check.h"
#include "support/thread_own.h"

#include <kiln/config.h>

#include <tbb/global_control.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

// TBB's library is not built for the thread sanitizer, which then does not see that tasks follow what spawned
// them.
#if defined(__SANITIZE_THREAD__)
extern "C" {
void __tsan_acquire(void*);
void __tsan_release(void*);
}
#define KILN_HAPPENS_BEFORE(point) __tsan_release(point)
#define KILN_HAPPENS_AFTER(point) __tsan_acquire(point)
#else
#define KILN_HAPPENS_BEFORE(point) static_cast<void>(point)
#define KILN_HAPPENS_AFTER(point) static_cast<void>(point)
#endif

namespace kiln::cpu {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kChunksPerThread = 4;  // enough to even out a core that is shared or slow

constinit std::atomic<bool> forked{false};
constinit thread_local bool inside = false;  // in a chunk or a job
constinit thread_local int inside_slot = 0;

struct Host {
  int affinity = affinity_cpus();
  double quota = cpu_quota();
  int count = 1;
  Host() {
    count = affinity;
    if (quota > 0) count = std::min(count, static_cast<int>(std::ceil(quota)));
    count = std::clamp(count, 1, kMaxThreads);
    pthread_atfork(nullptr, nullptr, [] { forked.store(true, std::memory_order_relaxed); });
  }
};

const Host& host() {
  static const Host* const instance = new Host;
  return *instance;
}

/// One arena per thread count ever used (in practice one); immortal, for loops that run during exit.
tbb::task_arena& arena(int threads) {
  struct Arenas {
    std::mutex mutex;
    std::unique_ptr<tbb::global_control> more;  // TBB starts one thread a CPU unless told otherwise
    int allowed = 0;
    std::atomic<tbb::task_arena*> made[kMaxThreads + 1] = {};
  };
  static Arenas* const all = new Arenas;
  if (tbb::task_arena* found = all->made[threads].load(std::memory_order_acquire)) return *found;
  const std::lock_guard lock(all->mutex);
  if (tbb::task_arena* found = all->made[threads].load(std::memory_order_acquire)) return *found;
  if (threads > std::max(all->allowed, host().affinity)) {
    all->more = std::make_unique<tbb::global_control>(tbb::global_control::max_allowed_parallelism,
                                                      static_cast<std::size_t>(threads));
    all->allowed = threads;
  }
  auto* made = new tbb::task_arena(threads);
  made->initialize();
  all->made[threads].store(made, std::memory_order_release);
  return *made;
}

/// The chunks of one loop, dealt to slots.
class Loop {
 public:
  Loop(std::int64_t n, std::int64_t chunks, int slots, LoopFn fn, void* context)
      : n_(n),
        chunks_(chunks),
        slots_(slots),
        fn_(fn),
        context_(context),
        shares_(new Share[static_cast<std::size_t>(slots)]) {
    for (int s = 0; s < slots; ++s) {
      shares_[s].next.store(s * chunks / slots, std::memory_order_relaxed);
      shares_[s].end = (s + 1) * chunks / slots;
    }
  }

  /// Runs chunks until none is left to take. Never throws.
  void drain(int slot) noexcept {
    const FlushScope as_the_caller(flush_);
    inside = true;
    inside_slot = slot;
    for (int i = 0; i < slots_; ++i) {
      Share& share = shares_[(slot + i) % slots_];
      while (share.next.load(std::memory_order_relaxed) < share.end) {
        const std::int64_t c = share.next.fetch_add(1, std::memory_order_relaxed);
        if (c >= share.end) break;
        run(c, slot);
      }
    }
    inside = false;
  }

  void rethrow() {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  struct alignas(64) Share {
    std::atomic<std::int64_t> next;
    std::int64_t end;
  };

  /// Longer chunks are spread, so that the shares of slots differ by one iteration at most.
  std::int64_t boundary(std::int64_t chunk) const {
    return chunk * (n_ / chunks_) + chunk * (n_ % chunks_) / chunks_;
  }

  void run(std::int64_t chunk, int slot) noexcept {
    if (failed_.load(std::memory_order_relaxed)) return;
    try {
      fn_(context_, boundary(chunk), boundary(chunk + 1), slot);
    } catch (...) {
      if (!failed_.exchange(true)) error_ = std::current_exception();
    }
  }

  std::int64_t n_, chunks_;
  int slots_;
  LoopFn fn_;
  void* context_;
  const FlushMode flush_ = FlushMode::of_thread();  // of the one that began the loop, for all that help
  std::unique_ptr<Share[]> shares_;
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;  // written once, read after all helpers have ended
};

/// Marks the calling thread as inside while a loop runs inline at the top level.
struct InlineScope {
  InlineScope() { inside = true, inside_slot = 0; }
  ~InlineScope() { inside = false; }
};

void run_loop(std::int64_t n, std::int64_t chunks, int threads, LoopFn fn, void* context) {
  Loop loop(n, chunks, threads, fn, context);
  KILN_HAPPENS_BEFORE(&loop);
  arena(threads).execute([&] {  // perhaps on another thread
    KILN_HAPPENS_AFTER(&loop);
    tbb::task_group group;
    const int helpers = static_cast<int>(std::min<std::int64_t>(threads, chunks)) - 1;
    for (int i = 0; i < helpers; ++i)
      group.run([&loop] {
        KILN_HAPPENS_AFTER(&loop);
        loop.drain(tbb::this_task_arena::current_thread_index());
        KILN_HAPPENS_BEFORE(&loop);
      });
    loop.drain(tbb::this_task_arena::current_thread_index());
    group.wait();
    KILN_HAPPENS_BEFORE(&loop);
  });
  KILN_HAPPENS_AFTER(&loop);
  loop.rethrow();
}

struct Scratch {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { std::free(data); }
};

}  // namespace

int thread_count() {
  if (forked.load(std::memory_order_relaxed)) return 1;
  const int wanted = config().num_threads;
  return wanted > 0 ? std::min(wanted, kMaxThreads) : host().count;
}

std::string thread_count_reason() {
  if (forked.load(std::memory_order_relaxed)) return "1: a forked child has no worker threads";
  if (const int wanted = config().num_threads; wanted > 0) return cat(thread_count(), ": KILN_NUM_THREADS");
  const Host& h = host();
  std::string out =
      cat(h.count, ": ", h.affinity, h.affinity == 1 ? " CPU" : " CPUs", " in the affinity mask");
  return h.quota > 0 ? cat(out, ", control-group quota of ", h.quota) : out + ", no control-group quota";
}

void parallel_for(std::int64_t n, std::int64_t grain, LoopFn fn, void* context) {
  if (n <= 0) return;
  if (inside) return fn(context, 0, n, inside_slot);
  const int threads = thread_count();
  const std::int64_t chunks = std::clamp<std::int64_t>(n / std::max<std::int64_t>(grain, 1), 1,
                                                       std::int64_t{threads} * kChunksPerThread);
  if (threads == 1 || chunks == 1) {
    const InlineScope scope;
    return fn(context, 0, n, 0);
  }
  run_loop(n, chunks, threads, fn, context);
}

void run_jobs(std::span<std::function<void()>> jobs) {
  struct Context {
    std::span<std::function<void()>> jobs;
    std::vector<std::exception_ptr> errors;
  } context{jobs, std::vector<std::exception_ptr>(jobs.size())};
  const LoopFn each = [](void* opaque, std::int64_t begin, std::int64_t end, int) {
    auto& c = *static_cast<Context*>(opaque);
    for (std::int64_t i = begin; i < end; ++i) {
      try {
        c.jobs[static_cast<std::size_t>(i)]();
      } catch (...) {
        c.errors[static_cast<std::size_t>(i)] = std::current_exception();
      }
    }
  };
  const auto n = static_cast<std::int64_t>(jobs.size());
  const int threads = thread_count();
  if (inside || threads == 1 || n < 2) {
    each(&context, 0, n, 0);
  } else {
    run_loop(n, n, threads, each, &context);  // a chunk a job: compiles differ widely in length
  }
  for (const std::exception_ptr& error : context.errors)
    if (error) std::rethrow_exception(error);
}

std::byte* scratch(std::size_t bytes) {
  Scratch& own = thread_own<Scratch, Scratch>();
  if (own.bytes < bytes) {
    const std::size_t rounded = (bytes + bytes / 4 + 4095) / 4096 * 4096;
    std::free(std::exchange(own.data, nullptr));
    own.bytes = 0;
    own.data = static_cast<std::byte*>(std::aligned_alloc(64, rounded));
    if (!own.data)
      throw DeviceError(cat("[memory] out of memory: a kernel wants ", rounded, " bytes of scratch"));
    own.bytes = rounded;
  }
  return own.data;
}

}  // namespace kiln::cpu
