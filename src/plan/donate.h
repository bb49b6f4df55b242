// donate: updates that are written into the memory of the old value.
//
// x with a box of it replaced is a new value, so it costs a copy of x. Where nobody reads the old x any more,
// the box alone is written: the update becomes a node of the box, stored at its place in x's memory (a
// placement), and the new value is that memory once the box is in it (GraphNode::arg of the pad, update_at or
// scatter names the argument).
//
// This pass looks at the graph only. What it cannot see (another region that reads the old x later, a region
// that reads it at other points than it writes) the planner finds afterwards, and plans again without
// donations.
#pragma once

#include "plan/region.h"

#include <atomic>
#include <span>
#include <unordered_map>
#include <vector>

namespace kiln::plan {

/// Bytes that a donation must save: below them the step that it adds costs more. Tests set it.
inline std::atomic<std::int64_t> donated_bytes{4096};

struct Donations {
  std::unordered_map<NodeId, Placement> placements;  // of the nodes of boxes
  std::vector<std::uint32_t> args;                   // arguments that are overwritten
  std::vector<NodeId> now;                           // of the node ids before; empty: nothing was donated
};

/// Pre: `leaves` show memory that belongs to the evaluation alone, and no value that stays pending is made of
/// them; `wanted` are nodes whose values somebody may ask for later. Post: topological, roots renumbered.
Donations donate(Graph& graph, std::span<const NodeId> leaves, std::span<const NodeId> wanted);

}  // namespace kiln::plan
