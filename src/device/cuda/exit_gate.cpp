#include "device/cuda/exit_gate.h"

#include <unistd.h>

#include <thread>

namespace kiln::cuda {

ExitGate::Answer ExitGate::enter() {
  inside_.fetch_add(1);
  if (held_.load()) [[unlikely]] {
    inside_.fetch_sub(1);
    for (int i = 0; i < 200 && held_.load() && !closed(); i += !waits_.load())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    held_.store(false);  // it was a thread's end alone, or the gate is closed
    inside_.fetch_add(1);
  }
  const Answer answer = state_.load();
  if (answer == Answer::Enter) [[likely]]
    return answer;
  inside_.fetch_sub(1);
  if (answer == Answer::Exiting && !pthread_equal(exiting_thread_.load(), pthread_self()))
    for (;;) pause();
  return answer;
}

void ExitGate::close() {
  if (state_.load() == Answer::Forked) return;
  exiting_thread_.store(pthread_self());
  state_.store(Answer::Exiting);
  wait_until_empty();
}

void ExitGate::hold() {
  if (closed()) return;
  waits_.store(true);
  held_.store(true);
  wait_until_empty();
  waits_.store(false);
}

void ExitGate::wait_until_empty() {
  const auto until = std::chrono::steady_clock::now() + patience_;
  while (inside_.load() > 0 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::microseconds(50));
}

}  // namespace kiln::cuda
