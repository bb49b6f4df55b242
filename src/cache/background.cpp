#include "cache/background.h"

#include "device/cpu/threads.h"
#include "engine/lifetime.h"
#include "support/check.h"
#include "support/log.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <new>
#include <system_error>
#include <thread>

namespace kiln::engine {
namespace {

constexpr int kMaxThreads = 4;

struct Job {
  std::function<void()> run;
  bool kept;
};

struct Queue {
  std::mutex mutex;
  std::condition_variable work, done;
  std::deque<Job> jobs;
  int threads = 0, idle = 0, running = 0;
};

Queue& queue() {
  static Queue* const q = new Queue;  // immortal: its threads are never joined
  return *q;
}

[[noreturn]] void work() {
  Queue& q = queue();
  for (;;) {
    {
      std::unique_lock lock(q.mutex);
      ++q.idle;
      q.work.wait(lock, [&] { return !q.jobs.empty(); });
      --q.idle;
    }
    const CompileTicket ticket;
    std::unique_lock lock(q.mutex);
    if (q.jobs.empty()) continue;
    const Job job = std::move(q.jobs.front());
    q.jobs.pop_front();
    ++q.running;
    lock.unlock();
    job.run();
    lock.lock();
    --q.running;
    if (q.jobs.empty()) q.done.notify_all();
  }
}

/// With the queue locked. The user's signal handlers are none of the new thread's business.
void start_thread(Queue& q) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(work).detach();
    ++q.threads;
  } catch (const std::system_error& e) {
    warn_once("background", cat("kernels stay with the vm: no thread to compile them on (", e.what(), ")"));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

int background_threads() { return std::clamp(cpu::thread_count() / 2, 1, kMaxThreads); }

void run_in_background(std::function<void()> job, bool kept) {
  Queue& q = queue();
  const std::lock_guard lock(q.mutex);
  q.jobs.push_back({std::move(job), kept});
  if (q.idle < static_cast<int>(q.jobs.size()) && q.threads < background_threads()) start_thread(q);
  q.work.notify_one();
}

void wait_for_background() {
  Queue& q = queue();
  std::unique_lock lock(q.mutex);
  const auto finished = [&] { return q.jobs.empty() && q.running == 0; };
  while (q.threads > 0 && !finished() && !CompileTicket::closed())
    q.done.wait_for(lock, std::chrono::milliseconds(20));
}

void finish_kept_jobs(std::chrono::milliseconds most) noexcept {
  Queue& q = queue();
  std::unique_lock lock(q.mutex);
  const auto nothing_kept = [&] { return q.threads == 0 || std::ranges::none_of(q.jobs, &Job::kept); };
  q.done.wait_until(lock, std::chrono::steady_clock::now() + most, nothing_kept);
}

std::mutex& background_mutex() { return queue().mutex; }

void forget_background_threads() noexcept {
  Queue& q = queue();
  new (&q.work) std::condition_variable;  // their waiters stayed behind
  new (&q.done) std::condition_variable;
  q.threads = q.idle = q.running = 0;
}

}  // namespace kiln::engine
