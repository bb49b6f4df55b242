#include "backend/cuda/exit_gate.h"

#include <unistd.h>

#include <thread>

namespace kiln::cuda {

ExitGate::Answer ExitGate::enter() {
  inside_.fetch_add(1);
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
  const auto until = std::chrono::steady_clock::now() + patience_;
  while (inside_.load() > 0 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::microseconds(50));
}

}  // namespace kiln::cuda
