// multiply_bytes: a product of halves that were 8-bit floats multiplies these, where tensor cores do.
#pragma once

#include "schedule/target.h"
#include "transform/replacement.h"

namespace kiln::plan {

/// Whether tensor cores of a target multiply 8-bit floats, and its main loops ask them.
bool multiplies_float8(const schedule::Target& target);

/// Products of a GPU whose two operands are views of 8-bit floats, converted, have their bytes as operands
/// instead (ir/float8_product.h), if a main loop can copy them as they lie. A main loop makes such a product
/// in any case: no library knows it. Pre: nobody looks at what products are made of but the fuser and the
/// lowering.
transform::Renumbering multiply_bytes(ir::Graph& graph, const schedule::Target& target);

}  // namespace kiln::plan
