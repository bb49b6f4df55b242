// The intermediates of a large plan in one block of memory, so that they have the same addresses whenever the
// block has, and a graph can be enqueued again.
#pragma once

#include "engine/plan.h"

namespace kiln::engine {

/// Gives each buffer that is not handed out a place in a block of plan.arena_bytes, those that a step needs
/// at the same time apart from each other; or none a place (0 bytes) where the block would take more than
/// `most` bytes. Pre: set_lifetimes().
void lay_out_arena(Plan& plan, std::uint64_t most);

}  // namespace kiln::engine
