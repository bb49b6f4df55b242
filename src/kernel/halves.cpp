#include "kernel/halves.h"

#include <bit>

namespace kiln::kernel {

static bool is_half_number(std::uint32_t bits, DType half) {
  const auto number = std::bit_cast<float>(bits);
  return half == DType::BFloat16 ? static_cast<float>(static_cast<bfloat16>(number)) == number
                                 : static_cast<float>(static_cast<float16>(number)) == number;
}

static bool is_widened(const ExprPool& pool, ExprId e, DType half, int depth) {
  constexpr int kMostDepth = 8;  // a value that is used twice is looked at twice
  const ExprNode n = pool[e];
  if (n.type != DType::Float32 || depth == kMostDepth) return false;
  const auto too = [&](ExprId operand) { return is_widened(pool, operand, half, depth + 1); };
  switch (n.prim) {
    case Prim::Cast: return pool[n.a].type == half;
    case Prim::Const: return is_half_number(static_cast<std::uint32_t>(n.imm), half);
    case Prim::Select: return too(n.b) && too(n.c);
    case Prim::Max:
    case Prim::Min: return too(n.a) && too(n.b);
    case Prim::Neg:
    case Prim::Abs: return too(n.a);
    default: return false;
  }
}

bool is_widened(const ExprPool& pool, ExprId e, DType half) { return is_widened(pool, e, half, 0); }

}  // namespace kiln::kernel
