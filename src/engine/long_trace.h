// Long traces: what is recorded and not read is computed after a while, in parts of equal structure, so that
// a loop of any length takes bounded memory and a constant number of plans and kernels.
#pragma once

#include "record/node.h"
#include "support/hash128.h"

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
/// caller. `key`: of the whole. Where periods do not follow each other, as in an optimizer's step, an
/// evaluation that comes again is left whole: one plan, which runs the periods side by side.
void compute_repeats(std::span<ir::Node* const> roots, const Hash128& key);

}  // namespace kiln::engine
