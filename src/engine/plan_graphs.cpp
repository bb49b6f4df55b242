#include "engine/plan_graphs.h"

#include "device/device.h"
#include "engine/plan.h"

#include <algorithm>
#include <utility>

namespace kiln::engine {
namespace {

constexpr std::size_t kFewestSteps = 4;  // fewer cost no more one by one

}  // namespace

bool suits_graph(const Plan& plan) {
  if (!device::at(plan.device).records_graphs() || plan.steps.size() < kFewestSteps) return false;
  const bool enqueued = std::all_of(plan.steps.begin(), plan.steps.end(), [&](const Step& s) {
    if (s.kind != Step::Kind::Library) return s.kind == Step::Kind::Launch;
    const LibraryCall& l = plan.library[s.index];
    return l.routine->is_recordable(call_without_memory(l, plan.device));
  });
  return enqueued;
}

PlanGraphs::Answer PlanGraphs::launch(const Hash128& key, const Hash128& fixed,
                                      std::span<const std::uint64_t> slots,
                                      const std::function<void(Entry&)>& set_anew) {
  const std::lock_guard lock(mutex_);
  if (refused_) return Answer::Run;
  const auto enqueue = [&](Entry& e) {
    e.graph->launch();
    e.used = ++uses_;
    return Answer::Launched;
  };
  Entry* other = nullptr;  // the one that was used longest ago
  for (Entry& e : entries_) {
    if (e.key == key) {
      if (!std::ranges::equal(e.slots, slots)) set_anew(e);
      return enqueue(e);
    }
    if (e.fixed == fixed && e.fixed != e.key && (!other || e.used < other->used)) other = &e;
  }
  const auto times = [&](auto is) { return std::count_if(seen_.begin(), seen_.end(), is); };
  const bool again = times([&](const Seen& s) { return s.key == key; }) > 0;
  const bool often = again || times([&](const Seen& s) { return s.fixed == fixed; }) > 1;
  if (!again) seen_[next_seen_++ % kSeen] = {key, fixed};
  if (other && (!again || entries_.size() == kGraphs)) {
    set_anew(*other);
    other->key = key;
    return enqueue(*other);
  }
  return often ? Answer::Capture : Answer::Run;
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
