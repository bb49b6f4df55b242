// apply_patterns: puts the kernels of the program's own patterns (kiln/fusion_pattern.h) in the place of the
// operations that they match.
#pragma once

#include "support/why.h"
#include "transform/replacement.h"

#include <kiln/device.h>

#include <cstdint>
#include <string>
#include <vector>

namespace kiln::transform {

/// What a pattern said of some nodes of a graph.
struct PatternNote {
  ir::NodeId first = 0, last = 0;  // of the match: an operand of an inner operation, and what is computed
  Why why;                         // a near miss; or, where the pattern keeps `last` apart, UserApart
};

/// The promises that a kernel must keep.
struct PatternTarget {
  Device device;
  bool strict = false, exact = false;
};

/// Whether any pattern is in force. Cheap.
bool any_patterns();
/// Another value for another list of patterns in force; 0 for none.
std::uint64_t patterns_salt();

/// Pre: equal nodes are one (cse). Post: verify(graph). Adds to `notes`, with numbers of the graph
/// afterwards.
Renumbering apply_patterns(ir::Graph& graph, const PatternTarget& target, std::vector<PatternNote>& notes);

}  // namespace kiln::transform
