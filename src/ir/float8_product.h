// Products of 8-bit floats whose operands are their bytes (plan/multiply_bytes.h): which formats these have.
// The result is of halves. Of other products nothing is known here.
#pragma once

#include "ir/graph.h"

namespace kiln::ir {

inline constexpr std::uint64_t kOfBytes = std::uint64_t{1} << 63;

/// Pre: the operands are bytes. `e5m2`: for each of them whether it is float8_e5m2, not float8_e4m3fn.
inline void mark_float8(GraphNode& product, const bool (&e5m2)[2]) {
  product.attr64 |= kOfBytes | std::uint64_t{e5m2[0]} << 62 | std::uint64_t{e5m2[1]} << 61;
}
inline bool multiplies_float8(const GraphNode& n) { return n.op == Op::matmul && (n.attr64 & kOfBytes) != 0; }
/// Pre: multiplies_float8(product).
inline bool is_e5m2(const GraphNode& product, int operand) {
  return (product.attr64 >> (62 - operand) & 1) != 0;
}

}  // namespace kiln::ir
