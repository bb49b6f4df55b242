// Primitives, types and constants as CUDA C. The meaning of each primitive is in kernel/prims.def; what takes
// more than an operator is a function of kernels_templates.
#pragma once

#include "kernel/expr.h"
#include "kernel/kernel.h"

#include <string>

namespace kiln::codegen {

const char* cuda_type(DType type);
/// Element type in memory: a byte that is not 0 is true.
const char* cuda_memory_type(DType type);
std::string cuda_constant(DType type, std::uint64_t bits);
/// One primitive that computes (not a leaf or load) on operand texts that can stand beside any operator.
/// `from` is the type of operand a. `index`: its result and operands are indices, which never overflow.
std::string cuda_primitive(const kernel::ExprNode& node, DType from, bool index, const std::string& a,
                           const std::string& b, const std::string& c);
std::string cuda_cast(DType to, DType from, bool in_range, const std::string& x);

/// Name of the functor in reduce.cuh.
const char* cuda_monoid(kernel::Monoid monoid);

}  // namespace kiln::codegen
