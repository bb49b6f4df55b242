// expand: one elementwise op over scalar expressions, from the expansion column of ops.def.
#pragma once

#include "ir/op.h"
#include "kernel/expr.h"
#include "schedule/target.h"

namespace kiln::lower {

/// Type an operation on `dtype` is computed in: half types compute in Float32.
constexpr DType compute_type(DType dtype) { return is_half(dtype) ? DType::Float32 : dtype; }

/// Pre: operands have their compute types (unused ones are empty); `type` is the dtype they were recorded
/// with. Post: the result in its compute type.
kernel::E expand(ir::Op op, kernel::E x, kernel::E y, kernel::E z, DType type);

/// The same for a GPU, where it has Float32 functions of its own. `rough`: an error of 2^-18 vanishes in what
/// is stored.
kernel::E expand_gpu(ir::Op op, bool rough, kernel::E x, kernel::E y, kernel::E z, DType type);

/// Whether a rough operand of a Float op costs its result no more than its own error: not of what jumps or
/// wraps around.
bool keeps_errors_small(ir::Op op);

/// Whether an op tells apart values that lie next to each other: a conversion, a comparison, a step. It takes
/// a half as that is stored, not with the bits that Float32 has more, which nobody sees.
bool tells_apart(ir::Op op);

/// Primitives each op expands to (Float32 where the op allows it), for Target::op_cost.
std::vector<float> op_costs(bool gpu);

}  // namespace kiln::lower
