#include "device/cpu/run.h"

#include "device/cpu/executable.h"
#include "device/cpu/threads.h"
#include "inspect/statistics.h"

#include <atomic>
#include <thread>

namespace kiln::cpu {
namespace {

/// Primitives below which a kernel runs on the calling thread: waking another costs a few microseconds.
constexpr double kInlineWork = 400e3;

constexpr int kSpins = 4000;  // of a thread that waits for another's few microseconds, before it yields

/// Items in ascending order, each taken by one thread from its body to its second section: its data stays
/// in that thread's cache. Whoever took an item runs it to its end, so the one that an item waits for
/// always gets on.
void run_chain(const device::Launch& l, const Executable& e, const kernel::Frame& frame) {
  std::atomic<std::int64_t> next{0}, linked{0};
  auto work = [&](std::int64_t, std::int64_t, int) {
    for (std::int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < l.grid;) {
      e.body(frame, i, i + 1, l.scratch_bytes, 1);
      for (int tries = 0; linked.load(std::memory_order_acquire) != i; ++tries)
        if (tries > kSpins) std::this_thread::yield();
      e.link(frame, i, l.scratch_bytes);
      linked.store(i + 1, std::memory_order_release);
      e.second(frame, i, l.scratch_bytes);
    }
  };
  if (l.work <= kInlineWork || l.grid == 1)
    work(0, 1, 0);
  else
    parallel_for(thread_count(), 1, work);
}

}  // namespace

void run(const device::Bound& bound) {
  const device::Launch& l = *bound.launch;
  const auto& e = static_cast<const Executable&>(*l.code);
  const kernel::Frame frame{bound.buffers, l.params.data(), bound.slots};
  if (!e.compiled()) engine::count(engine::Counter::VmLaunches);
  if (e.chained()) {
    run_chain(l, e, frame);
  } else if (l.work <= kInlineWork || l.grid <= l.grain) {
    e.body(frame, 0, l.grid, l.scratch_bytes, l.grain);
  } else {
    parallel_for(l.grid, l.grain, [&](std::int64_t begin, std::int64_t end, int) {
      e.body(frame, begin, end, l.scratch_bytes, l.grain);
    });
  }
  e.finish(frame, l.finish_grid);
}

}  // namespace kiln::cpu
