// Plans in memory: a small table per thread in front of one shared, bounded map.
#include "engine/plan.h"

#include "engine/positions.h"
#include "support/thread_own.h"

#include <array>
#include <atomic>
#include <mutex>
#include <unordered_map>

namespace kiln::engine {
namespace {

constexpr std::size_t kMaxPlans = 16384;  // beyond it half of the plans, picked by hash order, are dropped
constexpr std::size_t kNear = 256;        // entries of a thread's own table

struct Shared {
  std::mutex mutex;
  std::unordered_map<Hash128, std::shared_ptr<const Plan>, HashOf> plans;
};
Shared& shared() {
  static Shared* const s = new Shared;  // immortal: evaluations may run during exit
  return *s;
}
std::atomic<std::uint64_t> epoch{1};  // bumped by clear_plan_cache: threads' own tables become stale

struct Near {
  struct Entry {
    Hash128 key;
    std::uint64_t epoch = 0;
    std::shared_ptr<const Plan> plan;
  };
  std::array<Entry, kNear> entries;
};
Near& near() { return thread_own<Near, Near>(); }

void remember(const Hash128& key, const std::shared_ptr<const Plan>& plan) {
  near().entries[key.lo % kNear] = {key, epoch.load(std::memory_order_relaxed), plan};
}

bool is_current(const Plan& plan) {
  return !plan.superseded || !plan.superseded->load(std::memory_order_acquire);
}

}  // namespace

std::shared_ptr<const Plan> find_plan(const Hash128& key) {
  const Near::Entry& e = near().entries[key.lo % kNear];
  if (e.key == key && e.epoch == epoch.load(std::memory_order_relaxed) && is_current(*e.plan)) return e.plan;
  std::lock_guard lock(shared().mutex);
  const auto it = shared().plans.find(key);
  if (it == shared().plans.end() || !is_current(*it->second)) return nullptr;
  remember(key, it->second);
  return it->second;
}

std::shared_ptr<const Plan> keep_plan(const Hash128& key, std::shared_ptr<const Plan> plan) {
  std::lock_guard lock(shared().mutex);
  auto& plans = shared().plans;
  if (plans.size() >= kMaxPlans) {
    std::size_t drop = plans.size() / 2;
    for (auto it = plans.begin(); drop > 0; --drop) it = plans.erase(it);
  }
  auto& kept = plans[key];
  if (!kept || !is_current(*kept)) kept = std::move(plan);
  remember(key, kept);
  return kept;
}

std::mutex& plan_cache_mutex() { return shared().mutex; }

void clear_plan_cache() {
  std::lock_guard lock(shared().mutex);
  shared().plans.clear();
  epoch.fetch_add(1, std::memory_order_relaxed);
  clear_positions();
}

}  // namespace kiln::engine
