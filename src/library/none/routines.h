// Routines of a device that runs nothing.
#pragma once

#include "library/call.h"

namespace kiln::none {

/// Takes every call, adds rows to products as a GPU's library does, and does nothing.
const library::Routine& routine(ir::Op op);

}  // namespace kiln::none
