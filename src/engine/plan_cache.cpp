// Plans in memory: a small table per thread in front of one shared, bounded map.
#include "engine/plan.h"

#include "engine/near_map.h"
#include "engine/positions.h"

namespace kiln::engine {
namespace {

using Plans = NearMap<std::shared_ptr<const Plan>, 16384, 256>;

bool is_current(const Plan& plan) {
  return !plan.superseded || !plan.superseded->load(std::memory_order_acquire);
}

}  // namespace

std::shared_ptr<const Plan> find_plan(const Hash128& key) {
  if (const auto* const plan = Plans::near(key); plan && is_current(**plan)) return *plan;
  const std::lock_guard lock(Plans::mutex());
  const auto* const plan = Plans::find(key);
  if (!plan || !is_current(**plan)) return nullptr;
  return Plans::remember(key, *plan);
}

std::shared_ptr<const Plan> keep_plan(const Hash128& key, std::shared_ptr<const Plan> plan) {
  const std::lock_guard lock(Plans::mutex());
  auto& kept = Plans::at(key);
  if (!kept || !is_current(*kept)) kept = std::move(plan);
  return Plans::remember(key, kept);
}

std::mutex& plan_cache_mutex() { return Plans::mutex(); }

void clear_plan_cache() {
  const std::lock_guard lock(Plans::mutex());
  Plans::clear();
  clear_positions();
}

}  // namespace kiln::engine
