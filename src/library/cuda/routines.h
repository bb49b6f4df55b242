// A GPU's routines, by op. Work is enqueued on the calling thread's stream of the call's device.
#pragma once

#include "library/call.h"

namespace kiln::cuda {

/// Pre: a library op or a contraction.
const library::Routine& routine(ir::Op op);

}  // namespace kiln::cuda
