// Reports of fusion: KILN_EXPLAIN and kiln::FusionRecorder. A plan that is made while reports are wanted
// keeps one; every evaluation by it adds what is its own, and the first and some of the later runs are
// measured step by step: runs number 1, 2, 4, 8, …, so that a long program's file stays short.
#pragma once

#include "cache/kernel_cache.h"
#include "inspect/plan_difference.h"

#include <kiln/arguments.h>
#include <kiln/fusion_report.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

namespace kiln::engine {

/// Whether plans that are made from now on keep reports: KILN_EXPLAIN is set, or a FusionRecorder lives.
bool explaining();

/// A plan's report, and what happens in its runs. Safe from any threads.
class PlanReport {
 public:
  /// `regions_of_step`: indices of report.regions. `code`: of each region's kernels, as report has them.
  struct Code {
    std::shared_ptr<const CachedKernel> kernel;
    Verdict verdict;
  };
  PlanReport(FusionReport report, std::vector<std::vector<std::uint32_t>> regions_of_step,
             std::vector<std::vector<Code>> code);

  /// Counts a run. True: it is to be measured, step by step.
  bool begin_run();
  /// Seconds that a step of a measured run took; 0: not known.
  void measured(std::size_t step, double seconds);
  std::uint64_t runs() const { return runs_.load(std::memory_order_relaxed); }
  /// The report as it is now: with the latest times, and code that was compiled meanwhile.
  FusionReport now() const;

 private:
  mutable std::mutex mutex_;
  FusionReport report_;
  const std::vector<std::vector<std::uint32_t>> regions_of_step_;
  const std::vector<std::vector<Code>> code_;
  std::atomic<std::uint64_t> runs_{0};
};

/// What an evaluation adds to the report of its plan.
struct EvaluationNotes {
  std::string_view call;  // that forced it
  SourceLocation line;
  bool planned = false;
  PlanDifference difference;  // planned: why
  std::vector<FusionReport::Stored> stored;
};
/// Whether anybody wants the report of an evaluation that ended.
bool is_due(const PlanReport& report, bool planned);
/// Gives the report of an evaluation that ended to recorders and to what KILN_EXPLAIN names: a new plan's
/// whole, a later measured run in short.
void deliver(const PlanReport& report, const EvaluationNotes& notes);

}  // namespace kiln::engine
