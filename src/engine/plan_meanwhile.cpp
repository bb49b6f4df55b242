// Plans that answer while main loops of better ones are compiled: an attention's takes a second, the library
// and kernels without it are there at once. When the background has compiled what the better plan needs, the
// plan that answers is superseded: the next evaluation plans anew and finds the code in memory.
#include "cache/background.h"
#include "engine/plan_maker.h"
#include "support/check.h"
#include "support/log.h"

#include <kiln/config.h>

#include <atomic>
#include <exception>
#include <utility>

namespace kiln::engine {
namespace {

/// The memory that a plan that answers may take at once: what only the first steps of a program want should
/// not be the most that it ever holds.
std::uint64_t most_bytes(std::uint64_t better) { return better + better / 4 + (64 << 20); }

}  // namespace

void compile_later(std::vector<LateKernel> late, Device device,
                   std::function<void(const std::exception*)> done) {
  run_in_background(
      [late = std::move(late), device, done = std::move(done)] {
        try {
          std::vector<KernelRequest> requests;
          for (const LateKernel& l : late)
            requests.push_back({l.kernel.get(), l.key, device, l.instances, nullptr, Verdict::Memory});
          obtain(requests);
          done(nullptr);
        } catch (const std::exception& e) {
          done(&e);
        }
      },
      config().cache == "rw");
}

std::vector<LateKernel> PlanMaker::late_kernels(const std::function<bool(const KernelRequest&)>& wanted) {
  std::vector<LateKernel> late;
  for (const KernelRequest& r : kernel_requests())
    if (wanted(r) && !is_at_hand(r))
      late.push_back({std::make_shared<const kernel::Kernel>(*r.kernel), r.key, r.instances});
  return late;
}

bool PlanMaker::answer_meanwhile(plan::Fusion fusion) {
  const schedule::Target& target = planning_target(device_);
  if (!target.gpu || target.exact || config().tier == Tier::Jit) return true;
  std::vector<LateKernel> late =
      late_kernels([](const KernelRequest& r) { return r.kernel->main_loop.has_value(); });
  if (late.empty()) return true;
  const std::uint64_t better = peak_bytes(*plan_);
  {
    const QuickPlanning quick;
    if (make_steps(fusion)) {
      for (const KernelRequest& r : kernel_requests())
        std::erase_if(late,
                      [&](const LateKernel& l) { return l.key == r.key && l.instances == r.instances; });
      if (late.empty()) return true;
      if (peak_bytes(*plan_) <= most_bytes(better)) {
        auto superseded = std::make_shared<std::atomic<bool>>(false);
        plan_->superseded = superseded;
        compile_later(std::move(late), device_, [superseded](const std::exception* e) {
          if (e) return warn(cat(e->what(), "; the plan without it stays"));
          superseded->store(true, std::memory_order_release);
        });
        return true;
      }
    }
  }
  return make_steps(fusion);
}

}  // namespace kiln::engine
