// How a library that was opened at run time meets the end of the process: its own exit handlers must find no
// thread inside it.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace kiln::cuda {

/// One for each library, static and constant-initialised, so that it is there before everything and after.
class ExitGate {
 public:
  /// `patience`: how long exit waits for the threads inside.
  constexpr explicit ExitGate(std::chrono::milliseconds patience) : patience_(patience) {}

  enum class Answer : std::uint8_t { Enter, Exiting, Forked };
  /// Enter: call leave() later. Exiting: this thread is the one that exits (others wait here for the end).
  /// Forked: this is a child of a process that had used the library, if that registered close_in_child.
  Answer enter();
  void leave() { inside_.fetch_sub(1); }
  bool closed() const { return state_.load(std::memory_order_relaxed) != Answer::Enter; }

  /// Registered with std::atexit by the gate's owner. Handlers run in reverse order of registration: register
  /// once the library is loaded, and again when it may have made static objects later.
  void close();
  /// For a thread's end that may be the process's: waits for the threads inside, and lets nobody in until
  /// close() or, if that does not come, a moment later.
  void hold();
  /// For fork's handlers: the child has none of the threads that were inside…
  void reset_in_child() {
    inside_.store(0);
    held_.store(false);
    waits_.store(false);
  }
  /// …and cannot use the library any more.
  void close_in_child() {
    state_.store(Answer::Forked);
    reset_in_child();
  }

 private:
  void wait_until_empty();

  std::chrono::milliseconds patience_;
  std::atomic<Answer> state_{Answer::Enter};
  std::atomic<int> inside_{0};
  std::atomic<bool> held_{false};
  std::atomic<bool> waits_{false};  // hold() does: the moment begins when the last thread has left
  std::atomic<pthread_t> exiting_thread_{};
};

}  // namespace kiln::cuda
