#include "engine/plan_arena.h"

#include <algorithm>
#include <vector>

namespace kiln::engine {
namespace {

constexpr std::uint64_t kAlignment = 256;
constexpr std::size_t kMostBuffers = 1 << 13;  // each is compared with all that have a place

bool meet(const Plan::BufferPlan& a, const Plan::BufferPlan& b) {
  return a.first <= b.last && b.first <= a.last;
}

}  // namespace

/// The largest first, each at the lowest place that is free throughout its steps.
void lay_out_arena(Plan& plan, std::uint64_t most) {
  std::vector<std::uint32_t> order, placed;  // placed: by place
  for (std::uint32_t b = 0; b < plan.buffers.size(); ++b)
    if (!plan.buffers[b].result && plan.buffers[b].first >= 0) order.push_back(b);
  plan.arena_bytes = 0;
  if (order.size() > kMostBuffers) return;
  std::ranges::stable_sort(
      order, [&](std::uint32_t a, std::uint32_t b) { return plan.buffers[a].bytes > plan.buffers[b].bytes; });
  std::uint64_t bytes = kAlignment;
  for (const std::uint32_t b : order) {
    Plan::BufferPlan& mine = plan.buffers[b];
    const std::uint64_t size = (mine.bytes + kAlignment - 1) / kAlignment * kAlignment;
    std::uint64_t at = 0;
    for (const std::uint32_t other : placed) {
      const Plan::BufferPlan& o = plan.buffers[other];
      if (!meet(mine, o)) continue;
      if (at + size <= o.offset) break;
      at = std::max(at, o.offset + (o.bytes + kAlignment - 1) / kAlignment * kAlignment);
    }
    mine.offset = at;
    bytes = std::max(bytes, at + size);
    placed.insert(
        std::ranges::upper_bound(placed, at, {}, [&](std::uint32_t p) { return plan.buffers[p].offset; }), b);
  }
  if (bytes <= most) plan.arena_bytes = bytes;
}

}  // namespace kiln::engine
