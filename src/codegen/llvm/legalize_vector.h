// Primitives that vector registers lack, written in those they have.
#pragma once

#include "kernel/expr.h"

namespace kiln::codegen {

/// The value of `e`, which varies over the lanes, in primitives that need not be taken apart lane by lane;
/// none when `e` is best emitted as it is. `uniform_b`: its second operand is the same on all lanes. The
/// result may extend `pool`; it contains nothing that would be legalized again.
kernel::E legalize_vector(kernel::ExprPool& pool, kernel::ExprId e, bool uniform_b);

}  // namespace kiln::codegen
