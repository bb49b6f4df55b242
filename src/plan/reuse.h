// reuse: results that take the memory of an argument.
//
// A training step makes new parameters from old ones point by point, and nobody reads the old ones again. The
// new value of a point may take the place of the old one, as in p -= lr * g of a program that overwrites:
// otherwise old and new lie in memory together.
//
// donate.h does the same for updates of a box, where it saves the copy of all the rest; there the graph
// changes, here only the place of a result.
#pragma once

#include "plan/region.h"

#include <kiln/device.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <unordered_map>
#include <vector>

namespace kiln::plan {

/// Bytes from which on an argument's memory is worth taking: whether it may be taken is part of a plan's key.
/// Tests set it.
inline std::atomic<std::int64_t> reused_bytes{64 << 10};
/// The same on a CPU, where old and new values leave each other's place in the caches.
inline std::int64_t least_reused_bytes(Device device) {
  constexpr std::int64_t kOnCpu = 4 << 10;
  const std::int64_t least = reused_bytes.load(std::memory_order_relaxed);
  return device.kind == Device::Kind::Cpu ? std::min(least, kOnCpu) : least;
}

/// Moves regions of maps whose results take the memory of arguments behind all others, and returns the places
/// of these results. `leaves`: row-major, aligned like results, the evaluation's own, and of no value that
/// stays pending. `wanted`: as for donate(). `epilogues`: so may maps behind a product
/// (schedule::Target::epilogues), but in the memory of its operands. Post: regions are in an order in which
/// they can run; whoever else reads such a leaf runs before. That a region reads a leaf at the points alone
/// that it writes is found by the lowering (lower::Lowered::overlaps).
std::unordered_map<NodeId, Placement> reuse(const Graph& graph, Regions& regions,
                                            std::span<const NodeId> leaves, std::span<const NodeId> wanted,
                                            bool epilogues);

}  // namespace kiln::plan
