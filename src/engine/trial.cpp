#include "engine/trial.h"

#include "cache/kernel_cache.h"
#include "device/device.h"
#include "engine/lifetime.h"
#include "engine/plan_variants.h"
#include "inspect/statistics.h"
#include "support/check.h"
#include "support/log.h"

#include <kiln/config.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace kiln::engine {
namespace {

constexpr double kError = 0.02;             // of one interval, to both sides
constexpr std::size_t kLeastToLose = 7;     // pairs: the fewest that have an interval
constexpr std::size_t kLeastToLoseFar = 4;  // the same where all of them show …
constexpr double kFarLoss = 0.9;            // … a gain below this
constexpr double kErrorOfFew = 0.13;        // of their interval
constexpr double kErrorOfMany = 0.01;       // the same of more pairs than are enough …
constexpr std::size_t kEnoughPairs = 60;    // … for a variant whose median is no gain
constexpr std::size_t kLooks[] = {kLeastPairs, 30, kEnoughPairs, 120, kMostPairs};
constexpr std::uint32_t kMostWaiting = 4096;  // turns until code that is still not there is given up
constexpr std::uint32_t kWarmUp = 2;          // first turns, one of each plan, whose times are dropped

std::atomic<TrialClock> trial_clock{nullptr};

}  // namespace

void set_trial_clock(TrialClock clock) { trial_clock.store(clock); }

Decision decide(const std::vector<double>& before, const std::vector<double>& with) {
  const std::size_t n = std::min(before.size(), with.size());
  if (n == kLeastToLoseFar) {
    for (std::size_t i = 0; i < n; ++i)
      if (before[i] >= kFarLoss * with[i]) return Decision::Open;
    return Decision::Loses;
  }
  const bool looked_at = n == kLeastToLose || std::ranges::find(kLooks, n) != std::end(kLooks);
  if (!looked_at) return Decision::Open;
  const Interval gain = median_ratio({before.begin(), before.begin() + static_cast<std::ptrdiff_t>(n)},
                                     {with.begin(), with.begin() + static_cast<std::ptrdiff_t>(n)},
                                     n > kEnoughPairs ? kErrorOfMany : kError);
  if (n >= kLeastPairs && gain.low > kLeastGain) return Decision::Wins;
  const bool promising = n < kMostPairs && (n < kEnoughPairs || gain.median > kLeastGain);
  return gain.high < kLeastGain || !promising ? Decision::Loses : Decision::Open;
}

Turn Trial::take_turn(const std::shared_ptr<const Plan>& plan, const Walk& walk, const Recording* copy) {
  Turn turn;
  turn.plan = turn.of = plan;
  const std::lock_guard lock(mutex_);
  if (done() || preparing_) return turn;
  if (!challenger_) {
    if (compiling_ && compiling_->load(std::memory_order_acquire) == LateCompile::Running) return turn;
    preparing_ = true;
    turn.prepares = copy ? std::make_unique<const Recording>(*copy) : std::make_unique<const Recording>(walk);
    return turn;
  }
  if (!is_compiled(*plan) || !is_compiled(*challenger_)) {
    if (++waited_ > kMostWaiting) next();
    return turn;
  }
  // Both begin a pair in turn: challenger, plan, plan, challenger.
  turn.challenger = turns_ % 4 == 0 || turns_ % 4 == 3;
  turn.timed = true;
  turn.round = round_;
  ++turns_;
  turn.timer = turn.challenger ? of_challenger_ : of_plan_;
  if (turn.challenger) turn.plan = challenger_;
  return turn;
}

void Trial::end_turn(const Turn& turn, const Walk& walk) {
  try {
    const CompileTicket ticket;  // no fork meanwhile
    if (turn.timed) return keep_time(turn);
    if (turn.prepares) prepare(*turn.prepares, *turn.of, walk);
  } catch (const CompileError&) {  // the process is exiting
  }
}

void run_turn(Turn& turn, const Walk& walk, std::span<std::byte* const> args,
              std::vector<ir::Buffer*>& results, bool* wrote) {
  run_plan(*turn.plan, args, walk.slots, results, wrote, turn.timed ? &turn.timer : nullptr);
  turn.of->trial->end_turn(turn, walk);
}

void Trial::next() {
  ++at_;
  ++round_;
  turns_ = waited_ = 0;
  before_.clear();
  with_.clear();
  challenger_.reset();
  compiling_.reset();
  if (at_ == candidates_.size()) done_.store(true, std::memory_order_release);
}

void Trial::prepare(const Recording& recording, const Plan& plan, const Walk& walk) {
  Candidate candidate;
  bool failed = false;
  {
    const std::lock_guard lock(mutex_);
    candidate = candidates_[at_];
    failed = compiling_ && compiling_->load(std::memory_order_acquire) == LateCompile::Failed;
  }
  Challenger made;
  StepTimer of_plan, of_challenger;
  bool differs = false, stale = false;
  try {
    // Another plan's trial may have been sooner.
    const FusionVariant variant = candidate.choice.variant;
    const UnitVerdict verdict = verdict_of(candidate.choice.unit, plan.device);
    const bool known = verdict.knows(variant);
    stale = verdict.in_force(variant) != candidate.against;
    if (!known && !failed && !stale) {
      made = make_challenger(walk, recording.graph, recording.ids, plan, candidate.choice);
      differs = made.plan && find_difference(plan, *made.plan, of_plan, of_challenger);
    }
    if (!known && !differs && !stale && !made.compiling)
      note_tried(candidate.choice.unit, plan.device, candidate.kind,
                 {variant, candidate.against, false, {}, {}, {}});
  } catch (const WrongKernel&) {
    throw;
  } catch (const std::exception& e) {  // of a challenger, which nobody asked for
    log(Topic::Plan, cat("a variant is not tried: ", e.what()));
    made = {};
    differs = false;
  }
  const std::lock_guard lock(mutex_);
  preparing_ = false;
  compiling_ = made.compiling;
  if (made.compiling) return;
  if (stale) {
    done_.store(true, std::memory_order_release);
    superseded_->store(true, std::memory_order_release);
    return;
  }
  if (!differs) return next();
  challenger_ = std::move(made.plan);
  of_plan_ = of_plan;
  of_challenger_ = of_challenger;
}

std::size_t Trial::compile_ahead(const Recording& recording, const Plan& plan, const Walk& walk,
                                 std::size_t count) {
  std::vector<Candidate> next;
  std::size_t end = 0;
  {
    const std::lock_guard lock(mutex_);
    end = std::min(at_ + count, candidates_.size());
    next.assign(candidates_.begin() + static_cast<std::ptrdiff_t>(at_),
                candidates_.begin() + static_cast<std::ptrdiff_t>(end));
  }
  for (const Candidate& c : next) {
    if (verdict_of(c.choice.unit, plan.device).knows(c.choice.variant)) continue;
    try {
      make_challenger(walk, recording.graph, recording.ids, plan, c.choice);
    } catch (const WrongKernel&) {
      throw;
    } catch (const std::exception&) {  // prepare() says so
    }
  }
  return end;
}

void Trial::keep_time(const Turn& turn) {
  count(Counter::VariantRuns);
  Candidate candidate;
  TriedVariant tried;
  {
    const std::lock_guard lock(mutex_);
    if (turn.round != round_ || done()) return;
    double seconds = turn.timer.seconds;
    if (const TrialClock clock = trial_clock.load(std::memory_order_relaxed))
      seconds = clock(candidates_[at_], turn.challenger);
    if (seconds <= 0) return next();  // the device runs nothing
    if (turns_ <= kWarmUp) return;
    (turn.challenger ? with_ : before_).push_back(seconds);
    const Decision decision = decide(before_, with_);
    if (decision == Decision::Open) return;
    candidate = candidates_[at_];
    const std::size_t pairs = std::min(before_.size(), with_.size());  // other threads may be ahead
    before_.resize(pairs);
    with_.resize(pairs);
    tried = {candidate.choice.variant,
             candidate.against,
             decision == Decision::Wins,
             median_ratio(before_, with_, pairs < kLeastToLose ? kErrorOfFew : kError),
             before_,
             with_};
    next();
    if (tried.won) done_.store(true, std::memory_order_release);
  }
  if (log_enabled(Topic::Plan))
    log(Topic::Plan, cat("variant ", name(tried.variant), " of a ", text_of(candidate.kind), ": ",
                         tried.gain.median, " times as fast (", tried.gain.low, " to ", tried.gain.high, ", ",
                         tried.before.size(), " pairs), ", tried.won ? "taken" : "not taken"));
  const bool won = tried.won;
  note_tried(candidate.choice.unit, turn.of->device, candidate.kind, std::move(tried));
  if (won) superseded_->store(true, std::memory_order_release);
}

std::pair<std::size_t, std::size_t> Trial::progress() const {
  const std::lock_guard lock(mutex_);
  return {at_, candidates_.size()};
}

}  // namespace kiln::engine
