// Long traces: what is recorded and not read is computed after a while, in parts of equal structure, so that
// a loop of any length takes bounded memory and a constant number of plans and kernels.
#pragma once

#include "record/node.h"

#include <span>

namespace kiln::engine {

/// Looks at the recorded nodes of the thread's trace when there are many (or leaves take much memory) and
/// computes those that can be cut off where the recording repeats itself. `newest` was recorded last.
void bound_recording(const ir::Node& newest);
/// An evaluation has ended: where little is left in the log, its length is bounded as at first.
void recording_was_read();
/// Nodes from which a trace to be evaluated is worth a look at whether it repeats itself.
inline constexpr std::size_t kLongTrace = 1024;
/// Computes what `roots` need part by part when it is long and repeats itself, and leaves the rest to the
/// caller.
void compute_repeats(std::span<ir::Node* const> roots);

}  // namespace kiln::engine
