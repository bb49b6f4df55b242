#include "engine/plan_graphs.h"

#include "device/device.h"
#include "engine/plan.h"

#include <algorithm>
#include <utility>

namespace kiln::engine {
namespace {

constexpr std::size_t kFewestSteps = 4;         // fewer cost no more one by one
constexpr std::uint64_t kMostBytes = 16 << 20;  // of intermediates, which a graph has to itself

}  // namespace

bool suits_graph(const Plan& plan) {
  if (!device::at(plan.device).records_graphs() || plan.steps.size() < kFewestSteps) return false;
  const bool enqueued = std::all_of(plan.steps.begin(), plan.steps.end(), [&](const Step& s) {
    if (s.kind != Step::Kind::Library) return s.kind == Step::Kind::Launch;
    const LibraryCall& l = plan.library[s.index];
    return l.routine->is_recordable(call_without_memory(l, plan.device));
  });
  std::uint64_t bytes = 0;
  for (const Plan::BufferPlan& b : plan.buffers)
    if (!b.result) bytes += b.bytes;
  return enqueued && bytes <= kMostBytes;
}

PlanGraphs::Answer PlanGraphs::launch(const Hash128& key, std::span<const std::uint64_t> slots,
                                      const std::function<void(Entry&)>& set_slots) {
  const std::lock_guard lock(mutex_);
  if (refused_) return Answer::Run;
  for (Entry& e : entries_)
    if (e.key == key) {
      if (!std::ranges::equal(e.slots, slots)) set_slots(e);
      e.graph->launch();
      e.used = ++uses_;
      return Answer::Launched;
    }
  if (std::find(seen_.begin(), seen_.end(), key) != seen_.end()) return Answer::Capture;
  seen_[next_seen_++ % kSeen] = key;
  return Answer::Run;
}

void PlanGraphs::keep(Entry entry) {
  const std::lock_guard lock(mutex_);
  if (!entry.graph) {
    refused_ = true;
    return;
  }
  entry.used = ++uses_;
  if (entries_.size() < kGraphs) return entries_.push_back(std::move(entry));
  Entry& oldest = *std::min_element(entries_.begin(), entries_.end(),
                                    [](const Entry& a, const Entry& b) { return a.used < b.used; });
  oldest = std::move(entry);
}

}  // namespace kiln::engine
