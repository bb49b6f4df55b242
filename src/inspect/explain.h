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
#include <string>
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
  /// `loops`: of the plans that the plan's loops run, which it keeps, as report.loops has them.
  PlanReport(FusionReport report, std::vector<std::vector<std::uint32_t>> regions_of_step,
             std::vector<std::vector<Code>> code, std::vector<const PlanReport*> loops = {});

  /// Counts a run. True: it is to be measured, step by step.
  bool begin_run();
  /// Seconds that a step of a measured run took; 0: not known.
  void measured(std::size_t step, double seconds);
  std::uint64_t runs() const { return runs_.load(std::memory_order_relaxed); }
  /// The report as it is now, with the latest times and code that was compiled meanwhile, but without the
  /// number of runs, except that of its loops' iterations. Evaluations between which none of that changed
  /// share it.
  std::shared_ptr<const FusionReport> now() const;

 private:
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const FusionReport> report_;
  std::vector<double> measured_ns_;  // of each region, as last measured
  const std::vector<std::vector<std::uint32_t>> regions_of_step_;
  const std::vector<std::vector<Code>> code_;
  const std::vector<const PlanReport*> loops_;
  std::atomic<std::uint64_t> runs_{0};
};

/// What an evaluation adds to the report of its plan.
struct EvaluationNotes {
  std::string call;  // that forced it
  SourceLocation line;
  bool planned = false;
  std::shared_ptr<const PlanDifference> difference;  // planned: why; else none
  std::vector<FusionReport::Stored> stored;
};
/// Whether anybody wants the report of an evaluation that ended.
bool is_due(const PlanReport& report, bool planned);
/// Gives the report of an evaluation that ended to recorders and to what KILN_EXPLAIN names: a new plan's
/// whole, a later measured run in short.
void deliver(const PlanReport& report, EvaluationNotes notes);

}  // namespace kiln::engine
