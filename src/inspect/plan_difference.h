// Why an evaluation found no plan: the first part of its plan key that differs from the latest trace of the
// same line.
#pragma once

#include "ir/graph.h"

#include <kiln/fusion_report.h>

namespace kiln::engine {

using PlanDifference = FusionReport::Difference;

/// Names the first difference between two recorded graphs that a plan key sees: "sum at train.cpp:41: shape
/// (64, 16), was (65, 16)". No field when nothing of the graphs differs (the options or the device do).
PlanDifference plan_difference(const ir::Graph& now, const ir::Graph& before);

/// Remembers the graph as the latest of the line that recorded its first root, and returns the difference
/// from the one before, or "nothing of this line was planned before".
PlanDifference note_missed_plan(ir::Graph graph);

}  // namespace kiln::engine
