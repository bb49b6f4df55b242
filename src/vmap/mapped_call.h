// The derivative of a call (a function with a derivative of its own, record/tape.h) whose operands are those
// of many examples: the derivative of one example, recorded on one's cotangents and then for all.
#pragma once

#include "record/tape.h"
#include "vmap/replay.h"

namespace kiln::mapped {

/// `call` is one example's, `base` knows what its values are for all, and `mapped` says which of its operands
/// differ between examples. All of its results have the axis of the examples.
std::shared_ptr<const void> mapped_rule(const ir::Call& call, std::shared_ptr<const Replay> base,
                                        std::vector<bool> mapped);

}  // namespace kiln::mapped
