// joined_halves: maps whose results are two equal parts side by side, both made of the same operands.
//
// A rotation of a head's halves joins a c - b s and b c + a s. Point by point either part reads a, b, c and
// s, half of them behind a guard; so a thread has a point of both parts instead, and reads each operand once.
// Planned after all merges: regions change, the graph does not.
#pragma once

#include "plan/region.h"
#include "schedule/target.h"

#include <functional>

namespace kiln::plan {

/// Sets Region::partner of maps that join halves, on a GPU, where `shares` says that two points together read
/// less than apart.
void join_halves(const Graph& graph, const schedule::Target& target, Regions& regions,
                 const std::function<bool(const Region&)>& shares);

}  // namespace kiln::plan
