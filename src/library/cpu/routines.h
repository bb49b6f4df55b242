// The CPU's routines, one for each library op and contraction: NAME_routine.
#pragma once

#include "library/call.h"

namespace kiln::cpu {

#define KILN_STRUCTURAL(...)
#define KILN_LIBRARY(Name, ...) const library::Routine& Name##_routine();
#include "ir/structural.def"
#undef KILN_STRUCTURAL
/// The one of an op.
const library::Routine& routine(ir::Op op);

}  // namespace kiln::cpu
