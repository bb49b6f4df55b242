// Which aliases begin a step of derivatives: those of the arguments of a derivative that stands in no other
// one. A long recording is cut between steps (engine/long_trace.h).
#pragma once

#include "record/node.h"

namespace kiln::ir {

/// Beside the attributes of an alias (ir::Alias) in its word: a derivative inside of another one made it.
inline constexpr std::uint64_t kInsideStep = 2;

inline void mark_inside_step(Node* alias) { alias->attr64 |= kInsideStep; }
inline bool begins_step(const Node& n) {
  return n.op == Op::alias && !attributes<Alias>(n).stops && (n.attr64 & kInsideStep) == 0;
}

}  // namespace kiln::ir
