// Runs plans: takes buffers from the device's pool and hands it the steps in order, or all of them as one
// graph.
#include "device/cpu/subnormals.h"
#include "engine/plan.h"
#include "engine/run.h"

#include <kiln/config.h>

namespace kiln::engine {
namespace {

cpu::FlushMode flush_mode(const Plan& plan) {
  const Config& c = config();
  const bool flushes = c.flush_subnormals && !c.strict && plan.device.kind == Device::Kind::Cpu;
  return flushes ? cpu::FlushMode::flushing() : cpu::FlushMode::of_thread();
}

}  // namespace

void run_plan(const Plan& plan, std::span<std::byte* const> args, std::span<const std::uint64_t> slots,
              std::vector<ir::Buffer*>& result_buffers, bool* wrote, StepTimer* timer) {
  const cpu::FlushScope subnormals(flush_mode(plan));
  Run run(plan, args, slots, wrote);
  if (timer) [[unlikely]]
    run.steps(*timer);
  else if (plan.report && plan.report->begin_run()) [[unlikely]]
    run.steps(plan.report.get());
  else
    run.steps_or_graph();
  run.results(result_buffers);
}

}  // namespace kiln::engine
