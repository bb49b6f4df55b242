// The C library's functions on vectors: glibc's libmvec, where it is as accurate as docs/accuracy.md
// promises.
#pragma once

#include "kernel/expr.h"

#include <string>
#include <vector>

namespace kiln::codegen {

inline constexpr const char* kVectorMathLibrary = "libmvec.so.1";

/// Symbol of a function on vectors of 2, 4 or 8 Float64 lanes (SSE4, AVX2, AVX-512); empty when there is
/// none. Vectors travel as the C calling convention has them; all vector registers are the caller's to save.
std::string vector_symbol(kernel::MathFn fn, int lanes);

/// Every symbol that the above may name.
std::vector<std::string> vector_symbols();

}  // namespace kiln::codegen
