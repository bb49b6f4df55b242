// Why an evaluation found no plan: the first part of its plan key that differs from the latest trace of the
// same line.
#pragma once

#include "ir/graph.h"

#include <string>

namespace kiln::engine {

/// Names the first difference between two recorded graphs that a plan key sees: "sum at train.cpp:41: shape
/// (64, 16), was (65, 16)". Empty when nothing of the graphs differs (the options or the device do).
std::string plan_difference(const ir::Graph& now, const ir::Graph& before);

/// Remembers the graph as the latest of the line that recorded its first root, and returns the difference
/// from the one before, or "nothing of this line was planned before".
std::string note_missed_plan(ir::Graph graph);

}  // namespace kiln::engine
