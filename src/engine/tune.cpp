// KILN_ADAPT=tune: an evaluation with a new plan is repeated, with its own arguments, until every verdict is
// there. What the repetitions compute is dropped.
#include "cache/background.h"
#include "engine/trial.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

namespace kiln::engine {
namespace {

/// One line on a terminal; nothing elsewhere.
class Progress {
 public:
  Progress() : shown_(isatty(STDERR_FILENO) == 1) {}
  ~Progress() {
    if (shown_) std::fputs("\r\033[K", stderr);
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void at(const Trial& trial, const SourceLocation& line) const {
    if (!shown_) return;
    constexpr std::size_t kWidth = 30;
    const auto [done, whole] = trial.progress();
    const std::size_t full = kWidth * done / std::max<std::size_t>(whole, 1);
    std::fprintf(stderr, "\r\033[K[%s%s] %zu/%zu %s:%u", std::string(full, '#').c_str(),
                 std::string(kWidth - full, '.').c_str(), done, whole, line.file_name(),
                 static_cast<unsigned>(line.line()));
    std::fflush(stderr);
  }

 private:
  bool shown_;
};

void run_and_drop(Turn& turn, const Walk& walk, std::span<std::byte* const> args) {
  std::vector<ir::Buffer*> results;
  run_turn(turn, walk, args, results, nullptr);
  for (ir::Buffer* b : results)
    if (b) ir::release(b);
}

}  // namespace

std::shared_ptr<const Plan> tune(std::shared_ptr<const Plan> plan, const Walk& walk,
                                 const Recording& recording, Device device,
                                 std::span<std::byte* const> args) {
  const Progress progress;
  // What overwrites its arguments cannot be repeated: its verdicts come from its evaluations.
  while (plan->trial && plan->donated.empty()) {
    Trial& trial = *plan->trial;
    std::size_t compiled = 0;  // candidates
    while (!trial.done()) {
      progress.at(trial, recording.graph[recording.graph.roots.front()].loc);
      if (trial.progress().first >= compiled) {  // as many at one time as there are threads for
        compiled =
            trial.compile_ahead(recording, *plan, walk, static_cast<std::size_t>(background_threads()));
        wait_for_background();  // compiling takes cores, which times would show
      }
      Turn turn = trial.take_turn(plan, walk, &recording);
      const bool waits = !turn.timed && !turn.prepares;
      if (waits) wait_for_background();
      if (turn.timed)
        run_and_drop(turn, walk, args);
      else
        trial.end_turn(turn, walk);
    }
    if (!plan->superseded->load(std::memory_order_acquire)) break;
    plan = keep_plan(walk.key, make_plan(walk, recording.graph, recording.ids, device));
  }
  return plan;
}

}  // namespace kiln::engine
