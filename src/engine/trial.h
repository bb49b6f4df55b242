// Trial: the comparison of a plan with plans that differ from it in one variant of one region.
//
// A plan that is made in adaptive mode has a trial if verdicts are missing. Its evaluations take turns: some
// run the plan, some a challenger, and both are timed over the steps in which the two differ. Pairs of times
// decide (decide()). When a challenger wins, the verdict is kept and the plan is superseded: the next
// evaluation plans anew, by the verdicts, and goes on with what is still unknown. Every variant of a unit is
// tried once against what is in force, and few are taken together, so that this ends; when nothing is left,
// the trial only says so.
//
// Challengers are planned by an evaluation after its own run, and compiled in the background: no result
// waits. A challenger publishes the same values as the plan, so that later evaluations do not depend on whose
// turn it was.
//
// All functions are safe from any thread. No lock is held while something is planned or run.
#pragma once

#include "engine/plan.h"
#include "engine/plan_variants.h"
#include "engine/variant_scope.h"
#include "engine/verdicts.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace kiln::engine {

/// The graph of a walk.
struct Recording {
  explicit Recording(const Walk& walk) : graph(build_graph(walk, ids)) {}
  std::vector<ir::NodeId> ids;
  ir::Graph graph;
};

/// One evaluation's part.
struct Turn {
  std::shared_ptr<const Plan> plan;  // to run; null: there is no trial
  std::shared_ptr<const Plan> of;    // whose trial it is
  bool timed = false, challenger = false;
  std::uint32_t round = 0;  // of the candidate that is timed
  StepTimer timer;
  std::unique_ptr<const Recording> prepares;  // not null: plans the next challenger
};

enum class Decision { Open, Wins, Loses };
/// From pairs of times. A variant wins when the interval of the median ratio lies above a gain of 3 %, after
/// 15, 30, 60, 120 or 240 pairs; it loses when the interval lies below that, after 7 pairs at the earliest,
/// when each of the first 4 shows a loss of a tenth, when the median of 60 is no such gain, and when 240
/// pairs tell nothing.
Decision decide(const std::vector<double>& before, const std::vector<double>& with);
inline constexpr std::size_t kLeastPairs = 15, kMostPairs = 240;
inline constexpr double kLeastGain = 1.03;

class Trial {
 public:
  Trial(std::vector<Candidate> candidates, std::shared_ptr<std::atomic<bool>> superseded)
      : candidates_(std::move(candidates)), superseded_(std::move(superseded)) {}

  /// Whether nothing is left to be tried.
  bool done() const { return done_.load(std::memory_order_acquire); }
  /// What an evaluation by the plan is to do. The caller holds the guard of the walk's trace, or has a copy
  /// of what was recorded.
  Turn take_turn(const std::shared_ptr<const Plan>& plan, const Walk& walk, const Recording* copy = nullptr);
  /// After the run: keeps its time, or plans the next challenger.
  void end_turn(const Turn& turn, const Walk& walk);
  /// Begins to compile the code of the next challengers, so many of them; returns the number of the first one
  /// behind them.
  std::size_t compile_ahead(const Recording& recording, const Plan& plan, const Walk& walk,
                            std::size_t count);
  /// The candidate's number, and how many there are: for a display of progress.
  std::pair<std::size_t, std::size_t> progress() const;

 private:
  void prepare(const Recording& recording, const Plan& plan, const Walk& walk);
  void keep_time(const Turn& turn);
  void next();  // with the lock held

  mutable std::mutex mutex_;
  std::vector<Candidate> candidates_;
  const std::shared_ptr<std::atomic<bool>> superseded_;
  std::atomic<bool> done_{false};
  std::size_t at_ = 0;  // of the candidates
  std::uint32_t round_ = 0;
  bool preparing_ = false;
  std::shared_ptr<std::atomic<LateCompile>> compiling_;  // null: nothing is
  std::shared_ptr<const Plan> challenger_;
  StepTimer of_plan_, of_challenger_;  // the steps that differ
  std::uint32_t turns_ = 0;            // of the candidate
  std::uint32_t waited_ = 0;           // turns in which code was not compiled yet
  std::vector<double> before_, with_;
};

/// For tests: what a timed run takes, instead of the clock. Null: the clock.
using TrialClock = double (*)(const Candidate& candidate, bool challenger);
void set_trial_clock(TrialClock clock);

/// Runs what it is an evaluation's turn to run, as run_plan() does, and ends the turn.
void run_turn(Turn& turn, const Walk& walk, std::span<std::byte* const> args,
              std::vector<ir::Buffer*>& results, bool* wrote);

/// Repeats an evaluation until every verdict of its plan is there; returns the plan that they lead to.
std::shared_ptr<const Plan> tune(std::shared_ptr<const Plan> plan, const Walk& walk,
                                 const Recording& recording, Device device, std::span<std::byte* const> args);

}  // namespace kiln::engine
