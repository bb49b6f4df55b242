#include "device/cpu/run.h"

#include "device/cpu/executable.h"
#include "device/cpu/threads.h"
#include "inspect/statistics.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace kiln::cpu {
namespace {

/// Primitives below which a kernel runs on the calling thread: waking another costs a few microseconds.
constexpr double kInlineWork = 400e3;

std::atomic<const RectangleObserver*> rectangle_observer{nullptr};

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

void run_epilogue(const device::Bound& bound, const device::Rectangle& at, std::byte* memory) {
  const device::Launch& l = *bound.launch;
  constexpr std::size_t kNear = 64;
  std::int64_t near_params[kNear];
  void* near_buffers[kNear];
  std::vector<std::int64_t> far_params;
  std::vector<void*> far_buffers;
  std::int64_t* params = near_params;
  void** buffers = near_buffers;
  if (l.params.size() > kNear || l.given_buffer >= static_cast<std::int32_t>(kNear)) {
    far_params.resize(l.params.size());
    params = far_params.data();
  }
  // How many buffers there are is not in the launch but for those that it takes.
  std::size_t count = l.arguments.empty() ? 1 : std::size_t{l.arguments.back()} + 1;
  count = std::max(count, static_cast<std::size_t>(l.given_buffer + 1));
  if (count > kNear) {
    far_buffers.resize(count);
    buffers = far_buffers.data();
  }
  std::copy(l.params.begin(), l.params.end(), params);
  std::copy_n(bound.buffers, count, buffers);
  const std::int64_t values[] = {at.batch, at.row, at.column, at.columns, at.pitch};
  for (std::size_t i = 0; i < l.given.size(); ++i)
    if (l.given[i] >= 0) params[l.given[i]] = values[i];
  if (l.given_buffer >= 0) buffers[l.given_buffer] = const_cast<void*>(at.sums);
  const auto& e = static_cast<const Executable&>(*l.code);
  const auto body = [&] { e.body_in({buffers, params, bound.slots}, 0, at.rows, l.scratch_bytes, memory); };
  const RectangleObserver* const observer = rectangle_observer.load(std::memory_order_acquire);
  if (observer && observer->launch == &l) [[unlikely]]
    return observer->observe(at, {params, l.params.size()}, body);
  body();
}

void make_piece(const device::Bound& bound, std::int64_t item, std::int64_t bytes, std::byte* to) {
  const device::Launch& l = *bound.launch;
  constexpr std::size_t kNear = 32;
  void* near_buffers[kNear];
  std::vector<void*> far_buffers;
  const std::size_t count = std::size_t{l.arguments.back()} + 1;
  void** buffers = near_buffers;
  if (count > kNear) {
    far_buffers.resize(count);
    buffers = far_buffers.data();
  }
  std::copy_n(bound.buffers, count, buffers);
  // where the first item would write
  buffers[l.given_buffer] = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(to) -
                                                    static_cast<std::uintptr_t>(item * bytes));
  const auto& e = static_cast<const Executable&>(*l.code);
  e.body({buffers, l.params.data(), bound.slots}, item, item + 1, 0, 1);
}

void observe_rectangles(const RectangleObserver* observer) {
  rectangle_observer.store(observer, std::memory_order_release);
}

std::size_t epilogue_memory(const device::Launch& l) {
  return static_cast<std::size_t>(static_cast<const Executable&>(*l.code).memory_bytes(l.scratch_bytes));
}

}  // namespace kiln::cpu
