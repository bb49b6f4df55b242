#include "record/trace_locks.h"

#include "record/recorded.h"

#include <mutex>
#include <thread>
#include <utility>

namespace kiln::ir {
namespace {

// 64 locks; trace ids map onto them. Locking all takes them in order, so there is no cycle.
constexpr int kLocks = 64;

class alignas(64) SpinLock {
 public:
  void lock() {
    while (flag_.exchange(true, std::memory_order_acquire)) {
      int spins = 0;
      while (flag_.load(std::memory_order_relaxed))
        if (++spins > 64) std::this_thread::yield();
    }
  }
  void unlock() { flag_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> flag_{false};
};
constinit SpinLock locks[kLocks];
SpinLock& lock_of(std::uint16_t id) { return locks[id % kLocks]; }

void lock_all() {
  for (SpinLock& l : locks) l.lock();
}
void unlock_all() {
  for (SpinLock& l : locks) l.unlock();
}

struct Trace {
  std::uint16_t id;
  RecordLog log;  // between two threads
  Trace* next;
};

/// Traces whose threads have ended, the latest first.
struct Traces {
  SpinLock lock;  // a leaf: nothing is allocated or locked while it is held
  Trace* ended = nullptr;
  std::uint16_t made = 0;
};
constinit Traces traces;

constinit thread_local Trace* own_trace = nullptr;
constinit thread_local bool leaving = false;

struct ThreadEnd {
  ~ThreadEnd() {
    leaving = true;
    current_trace_id = kSharedTrace;
    if (!own_trace) return;
    own_trace->log = std::exchange(recorded, {});
    const std::lock_guard lock(traces.lock);
    own_trace->next = std::exchange(traces.ended, own_trace);
  }
};
thread_local ThreadEnd thread_end;

/// Null: every id is in use.
Trace* take_trace() {
  std::uint16_t id;
  {
    const std::lock_guard lock(traces.lock);
    if (Trace* const t = traces.ended) {
      traces.ended = t->next;
      return t;
    }
    if (traces.made + 1 == kSharedTrace) return nullptr;
    id = ++traces.made;
  }
  auto* const made = new Trace{.id = id, .log = {}, .next = nullptr};
  made->log.seen_stretch = leaf_stretch.load(std::memory_order_relaxed);
  return made;
}

}  // namespace

constinit thread_local std::uint16_t current_trace_id = 0;

std::uint16_t assign_trace() {
  if (!leaving) {
    (void)thread_end;
    own_trace = take_trace();
    if (own_trace) recorded = std::exchange(own_trace->log, {});
  }
  return current_trace_id = own_trace && !leaving ? own_trace->id : kSharedTrace;
}

void lock_all_traces() {
  lock_all();
  traces.lock.lock();
}
void unlock_all_traces() {
  traces.lock.unlock();
  unlock_all();
}

TraceGuard::TraceGuard() : own_(current_trace()) { lock_of(own_).lock(); }
TraceGuard::~TraceGuard() {
  if (held_) unlock();
}

void TraceGuard::unlock() {
  if (all_)
    unlock_all();
  else
    lock_of(own_).unlock();
  held_ = false;
}

void TraceGuard::relock() {
  if (all_)
    lock_all();
  else
    lock_of(own_).lock();
  held_ = true;
}

void TraceGuard::widen() {
  unlock();
  all_ = true;
  relock();
}

}  // namespace kiln::ir
