#include "lower/expand.h"

#include "lower/math.h"
#include "support/check.h"

#include <cmath>

namespace kiln::lower {

using kernel::E;
using kernel::ExprId;
using kernel::ExprPool;
using kernel::Prim;

constexpr float kScanCost = 12;   // prefixes within a register
constexpr float kGatherCost = 8;  // an element loaded from its own address, and the test of its index

E expand(ir::Op op, [[maybe_unused]] E x, [[maybe_unused]] E y, [[maybe_unused]] E z, [[maybe_unused]] DType type) {
  switch (op) {
#define KILN_OP(Name, Arity, Rule, Types, Reference, Expansion, Lo, Hi, Doc) \
  case ir::Op::Name:                                                         \
    return Expansion;
#include <kiln/ops.def>
#undef KILN_OP
#define KILN_STRUCTURAL(Name, Kind) case ir::Op::Name:
#include "ir/structural.def"
#undef KILN_STRUCTURAL
    break;
  }
  KILN_CHECK_THAT(false, "no expansion for ", ir::info(op).name);
  return {};
}

std::vector<float> op_costs() {
  std::vector<float> costs(static_cast<std::size_t>(ir::kOpCount), 1.0f);
  for (int i = 0; i < ir::kOpCount; ++i) {
    const ir::Op op = static_cast<ir::Op>(i);
    const ir::OpInfo& facts = ir::info(op);
    if (facts.kind == ir::OpKind::View || facts.kind == ir::OpKind::Leaf) costs[i] = 0;
    if (facts.kind == ir::OpKind::Gather) costs[i] = kGatherCost;
    if (facts.kind == ir::OpKind::Scan) costs[i] = kScanCost;
    if (facts.kind != ir::OpKind::Elementwise) continue;
    ExprPool pool;
    const DType type = facts.types & ir::FLOAT ? DType::Float32 : facts.types & ir::INTEGER ? DType::Int32 : DType::Bool;
    E operand[3];
    for (int k = 0; k < facts.arity; ++k) {
      const DType t = facts.rule == ir::TypeRule::Select && k == 0 ? DType::Bool
                      : facts.rule == ir::TypeRule::Logical        ? DType::Bool
                      : facts.rule == ir::TypeRule::Word32 || facts.rule == ir::TypeRule::Word64 ? DType::UInt64
                                                                   : type;
      operand[k] = {&pool, pool.intern({Prim::Slot, t, kernel::kNoExpr, kernel::kNoExpr, kernel::kNoExpr,
                                        static_cast<std::uint64_t>(k)})};
    }
    const ExprId before = pool.size();
    expand(op, operand[0], operand[1], operand[2], type);
    float cost = 0;
    for (ExprId e = before; e < pool.size(); ++e) {
      const Prim p = pool[e].prim;
      if (p == Prim::Const || p == Prim::Bitcast) continue;
      cost += p == Prim::Div || p == Prim::Sqrt ? 6.0f : p == Prim::Call1 || p == Prim::Call2 ? 80.0f : p == Prim::Philox ? 32.0f : 1.0f;
    }
    costs[static_cast<std::size_t>(i)] = cost;
  }
  return costs;
}

}  // namespace kiln::lower
