#include "ir/trace_locks.h"

#include <mutex>
#include <new>
#include <thread>

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
std::atomic<std::uint32_t> next_trace{1};

SpinLock& lock_of(std::uint16_t id) { return locks[id % kLocks]; }

}  // namespace

constinit thread_local std::uint16_t current_trace_id = 0;

std::uint16_t assign_trace() {
  // Ids are reused modulo 4,095; two threads with one id share a lock, which is safe.
  current_trace_id = static_cast<std::uint16_t>(next_trace.fetch_add(1, std::memory_order_relaxed) % 4095 + 1);
  return current_trace_id;
}

bool trace_ids_reused() { return next_trace.load(std::memory_order_relaxed) > 4095; }

void lock_all_traces() {
  for (SpinLock& l : locks) l.lock();
}
void unlock_all_traces() {
  for (SpinLock& l : locks) l.unlock();
}

TraceGuard::TraceGuard() : own_(current_trace()) { lock_of(own_).lock(); }
TraceGuard::~TraceGuard() {
  if (held_) unlock();
}

void TraceGuard::unlock() {
  if (all_)
    unlock_all_traces();
  else
    lock_of(own_).unlock();
  held_ = false;
}

void TraceGuard::relock() {
  if (all_)
    lock_all_traces();
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
