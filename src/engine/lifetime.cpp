#include "engine/lifetime.h"

#include "cache/background.h"
#include "cache/kernel_cache.h"
#include "engine/plan.h"
#include "engine/positions.h"
#include "engine/verdicts.h"
#include "record/trace_locks.h"
#include "support/check.h"

#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace kiln::engine {
namespace {

constexpr std::chrono::seconds kLeaving{2};
constexpr std::chrono::milliseconds kFinishing{250};  // what a process stays longer to fill the disk cache

struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  int out = 0;  // tickets
  int exit_guards = 0;
  bool forking = false;
  bool leaving = false;  // the main thread has ended: exit follows, unless it ended by pthread_exit
  bool exiting = false;
  std::thread::id exiting_thread;
};

void before_fork();
void after_fork();
void after_fork_in_child();

Gate& gate() {
  static Gate* const g = [] {  // immortal: threads may wait on it until the process is gone
    auto* made = new Gate;
    // makes what has it
    for (std::mutex& (*part)() :
         {plan_cache_mutex, positions_mutex, verdicts_mutex, kernel_cache_mutex, background_mutex})
      part();
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
    return made;
  }();
  return *g;
}

/// From the start: a child that is forked while a thread makes one of these would wait for that thread for
/// ever.
[[maybe_unused]] Gate& made_at_start = gate();

void close_for_exit() {
  Gate& g = gate();
  std::unique_lock lock(g.mutex);
  g.exiting = true;
  g.exiting_thread = std::this_thread::get_id();
  g.changed.wait(lock, [&] { return g.out == 0; });
}

// Objects that LLVM makes during its first compiles have exit handlers younger than ours. exit destroys the
// exiting thread's thread_local objects before it calls any handler, so when that is the main thread we are
// called in time.
class MainThreadEnd {
 public:
  void watch() { watching_ = true; }
  ~MainThreadEnd() {
    if (!watching_) return;
    finish_kept_jobs(kFinishing);
    Gate& g = gate();
    std::unique_lock lock(g.mutex);
    g.leaving = true;
    g.exiting_thread = std::this_thread::get_id();
    g.changed.wait(lock, [&] { return g.out == 0; });
  }

 private:
  bool watching_ = false;
};
thread_local MainThreadEnd main_thread_end;
/// Tickets that the calling thread holds.
constinit thread_local int held = 0;

[[maybe_unused]] const bool watching = [] {
  if (getpid() == gettid()) main_thread_end.watch();
  return true;
}();

// In the order in which evaluations nest these locks. The pool, whose lock is innermost, has handlers of its
// own.
void before_fork() {
  Gate& g = gate();
  {
    std::unique_lock lock(g.mutex);
    g.changed.wait(lock, [&] { return !g.forking; });
    g.forking = true;
    g.changed.wait(lock, [&] { return g.out == 0; });
  }
  ir::lock_all_traces();
  plan_cache_mutex().lock();
  positions_mutex().lock();
  verdicts_mutex().lock();
  kernel_cache_mutex().lock();
  background_mutex().lock();
  g.mutex.lock();
}

void after_fork() {
  Gate& g = gate();
  g.forking = false;
  g.mutex.unlock();
  background_mutex().unlock();
  kernel_cache_mutex().unlock();
  verdicts_mutex().unlock();
  positions_mutex().unlock();
  plan_cache_mutex().unlock();
  ir::unlock_all_traces();
  g.changed.notify_all();
}

void after_fork_in_child() {
  Gate& g = gate();
  new (&g.changed) std::condition_variable;  // its waiters stayed behind
  forget_background_threads();
  after_fork();
}

}  // namespace

CompileTicket::CompileTicket() {
  if (held > 0) {
    ++held;
    return;
  }
  Gate& g = gate();
  std::unique_lock lock(g.mutex);
  while (g.exiting || g.leaving || g.forking) {
    if ((g.exiting || g.leaving) && g.exiting_thread == std::this_thread::get_id())
      throw CompileError("[compile] the process is exiting: no kernel is compiled any more");
    if (g.exiting) {
      lock.unlock();
      for (;;) pause();
    }
    if (!g.leaving)
      g.changed.wait(lock);
    else if (g.changed.wait_for(lock, kLeaving) == std::cv_status::timeout && !g.exiting)
      g.leaving = false;  // the main thread has ended, but not the process
  }
  ++g.out;
  held = 1;
  if (g.exit_guards == 0) {  // what LLVM's libraries made when they were loaded dies after this
    ++g.exit_guards;
    std::atexit(close_for_exit);
  }
}

CompileTicket::~CompileTicket() {
  if (--held > 0) return;
  Gate& g = gate();
  const std::lock_guard lock(g.mutex);
  if (--g.out == 0) g.changed.notify_all();
}

bool CompileTicket::closed() {
  Gate& g = gate();
  const std::lock_guard lock(g.mutex);
  return g.exiting || g.leaving;
}

void CompileTicket::guard_exit() {
  // LLVM makes more static objects at first use of this or that part; the first compiles meet nearly all of
  // them.
  constexpr int kGuards = 8;
  Gate& g = gate();
  const std::lock_guard lock(g.mutex);
  if (g.exiting || g.exit_guards == kGuards) return;
  ++g.exit_guards;
  std::atexit(close_for_exit);
}

}  // namespace kiln::engine
