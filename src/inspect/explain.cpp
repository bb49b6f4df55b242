#include "inspect/explain.h"

#include "inspect/fusion_builder.h"
#include "inspect/report_json.h"
#include "inspect/report_page.h"
#include "support/check.h"
#include "support/log.h"

#include <kiln/config.h>
#include <kiln/error.h>

#include <atomic>
#include <bit>
#include <cstdio>
#include <deque>
#include <fstream>
#include <utility>

namespace kiln::engine {
namespace {

std::atomic<int> recorders{0};
std::atomic<std::uint64_t> plans{0};

/// An evaluation that ended. A report is put together when somebody asks for it, because programs evaluate
/// more often than they ask.
struct Ended {
  std::shared_ptr<const FusionReport> plan;
  std::uint64_t runs;
  EvaluationNotes notes;

  FusionReport report() const {
    FusionReport out = *plan;
    out.runs = runs;
    out.trigger = {notes.call, notes.line.file_name(), notes.line.line()};
    out.planned = notes.planned;
    if (notes.difference) out.difference = *notes.difference;
    out.stored = notes.stored;
    return out;
  }
};

struct Recorded {
  std::mutex mutex;
  std::deque<Ended> evaluations;
};
Recorded& recorded() {
  static Recorded* const r = new Recorded;  // detached threads may evaluate during exit
  return *r;
}

void append(const std::string& file, const std::string& line) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::ofstream out(file, std::ios::app);
  out << line << "\n";
  if (!out.flush()) warn_once("explain", cat("cannot write to ", file));
}

/// A page begins anew in each process.
void begin_page(const std::string& file) {
  static std::mutex mutex;
  static std::string* const begun = new std::string;
  const std::lock_guard lock(mutex);
  if (*begun == file) return;
  *begun = file;
  std::ofstream(file) << page_begin();
}

void write(const FusionReport& report) {
  const std::string& where = config().explain;
  if (where == "1") {
    if (report.planned) std::fputs(to_text(report).c_str(), stderr);
    return;
  }
  if (where.ends_with(".html")) {
    begin_page(where);
    if (report.planned)
      append(where, page_plan(report));
    else if (std::has_single_bit(report.runs))
      append(where, page_run(run_to_json(report)));
  } else if (report.planned)
    append(where, to_json(report));
  else if (std::has_single_bit(report.runs))
    append(where, run_to_json(report));
}

}  // namespace

bool explaining() { return !config().explain.empty() || recorders.load(std::memory_order_relaxed) > 0; }

PlanReport::PlanReport(FusionReport report, std::vector<std::vector<std::uint32_t>> regions_of_step,
                       std::vector<std::vector<Code>> code, std::vector<const PlanReport*> loops)
    : regions_of_step_(std::move(regions_of_step)), code_(std::move(code)), loops_(std::move(loops)) {
  report.plan = ++plans;
  for (const FusionReport::Region& r : report.regions) measured_ns_.push_back(r.measured_ns);
  report_ = std::make_shared<const FusionReport>(std::move(report));
}

bool PlanReport::begin_run() {
  return std::has_single_bit(runs_.fetch_add(1, std::memory_order_relaxed) + 1);
}

void PlanReport::measured(std::size_t step, double seconds) {
  const std::vector<std::uint32_t>& regions = regions_of_step_[step];
  const std::lock_guard lock(mutex_);
  for (const std::uint32_t r : regions)  // several kernels of one launch: each its part
    measured_ns_[r] = seconds > 0 ? seconds * 1e9 / static_cast<double>(regions.size()) : -1;
}

std::shared_ptr<const FusionReport> PlanReport::now() const {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<FusionReport> changed;
  const auto change = [&]() -> FusionReport& {
    if (!changed) changed = std::make_shared<FusionReport>(*report_);
    return *changed;
  };
  for (std::size_t r = 0; r < measured_ns_.size(); ++r)
    if (measured_ns_[r] != report_->regions[r].measured_ns) change().regions[r].measured_ns = measured_ns_[r];
  for (std::size_t r = 0; r < code_.size(); ++r)
    for (std::size_t k = 0; k < code_[r].size(); ++k) {
      const Code& code = code_[r][k];
      const FusionReport::Kernel& was = report_->regions[r].kernels[k];
      const std::string verdict = verdict_of(*code.kernel, code.verdict);
      const std::uint64_t ns = code.kernel->compile_ns.load(std::memory_order_relaxed);
      const std::int64_t compile_ns =
          ns > 0 && code.verdict != Verdict::Memory ? static_cast<std::int64_t>(ns) : was.compile_ns;
      if (was.verdict == verdict && was.compile_ns == compile_ns) continue;
      FusionReport::Kernel& kernel = change().regions[r].kernels[k];
      kernel.verdict = verdict;
      kernel.compile_ns = compile_ns;
    }
  for (std::size_t l = 0; l < loops_.size(); ++l) {
    FusionReport loop = *loops_[l]->now();
    loop.runs = loops_[l]->runs();
    if (loop != report_->loops[l]) change().loops[l] = std::move(loop);
  }
  if (changed) report_ = std::move(changed);
  return report_;
}

bool is_due(const PlanReport& report, bool planned) {
  return planned || recorders.load(std::memory_order_relaxed) > 0 || std::has_single_bit(report.runs());
}

void deliver(const PlanReport& plan, EvaluationNotes notes) {
  Ended ended{plan.now(), plan.runs(), std::move(notes)};
  if (!config().explain.empty()) write(ended.report());
  if (recorders.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(recorded().mutex);
  recorded().evaluations.push_back(std::move(ended));
}

}  // namespace kiln::engine

namespace kiln {

FusionRecorder::FusionRecorder() {
  const std::lock_guard lock(engine::recorded().mutex);
  first_ = engine::recorded().evaluations.size();
  ++engine::recorders;
}

FusionRecorder::~FusionRecorder() {
  const std::lock_guard lock(engine::recorded().mutex);
  if (--engine::recorders == 0) engine::recorded().evaluations.clear();
}

std::vector<FusionReport> FusionRecorder::reports() const {
  const std::lock_guard lock(engine::recorded().mutex);
  std::vector<FusionReport> out;
  const auto& all = engine::recorded().evaluations;
  for (std::size_t i = first_; i < all.size(); ++i) out.push_back(all[i].report());
  return out;
}

FusionReport FusionRecorder::last() const {
  const std::lock_guard lock(engine::recorded().mutex);
  if (engine::recorded().evaluations.size() == first_)
    throw UserError("[fusion] nothing was evaluated since the recorder began");
  return engine::recorded().evaluations.back().report();
}

}  // namespace kiln
