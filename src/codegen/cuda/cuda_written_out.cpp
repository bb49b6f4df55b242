// CudaEmitter: short loops down columns. A loop of few iterations is written out: all its loads come first,
// and stay in registers for the loops behind it that load the same, as those of a norm down few rows do.
//
// Invariant: an array of loads is declared where the vector at hand begins, and has one element an iteration.
#include "codegen/cuda/cuda_function.h"

#include <algorithm>
#include <limits>

namespace kiln::codegen {

/// Whether two expressions are equal but for the variables of their loops.
bool CudaEmitter::same_but_for(ExprId a, std::uint32_t var_of_a, ExprId b, std::uint32_t var_of_b) const {
  if (a == kNoExpr || b == kNoExpr) return a == b;
  const ExprNode &x = pool_[a], &y = pool_[b];
  if (x.prim != y.prim || x.type != y.type) return false;
  if (x.prim == Prim::Var)
    return x.imm == y.imm || (x.imm == var_of_a && y.imm == var_of_b) || same_chunk(x.imm, y.imm);
  return x.imm == y.imm && same_but_for(x.a, var_of_a, y.a, var_of_b) &&
         same_but_for(x.b, var_of_a, y.b, var_of_b) && same_but_for(x.c, var_of_a, y.c, var_of_b);
}

/// The array of a loop before this one, written out as well, that has what a load gives.
const std::string* CudaEmitter::loaded_before(ExprId load) const {
  if (!writes_out_) return nullptr;
  const auto found = std::ranges::find_if(kept_, [&](const Kept& k) {
    return k.var != writes_out_->var && same_but_for(load, writes_out_->var, k.load, k.var);
  });
  return found == kept_.end() ? nullptr : &found->name;
}

/// A serial loop of l.steps iterations at most.
void CudaEmitter::written_out(const LoopDecl& l, const std::string& extent) {
  const std::string i = cat('i', l.var);
  const Stage around = std::exchange(stage_, {});
  const Together outside = std::exchange(together_, {});
  open_scope(l, i);
  writes_out_ = &l;
  stage_ = {depth(), l.steps, std::numeric_limits<int>::max(), {}, {}, {}};
  if (gathers(l)) gathering_.steps = l.steps;
  block(l.body);
  const std::string body = close_scope();
  writes_out_ = nullptr;
  const Stage ahead = std::exchange(stage_, around);
  together_ = outside;
  Gathering all = std::exchange(gathering_, {});
  all.first =
      std::ranges::all_of(all.arrays, [&](const auto& a) { return std::ranges::count(l.accs, a.first) > 0; });
  const auto each = [&](const std::string& text) {
    return cat("#pragma unroll\nfor (int k = 0; k < ", l.steps, "; ++k) {\nconst ", index_type(), ' ', i,
               " = k;\nif (", i, " < ", extent, ") {\n", text, "}\n}\n");
  };
  (begins_chunk_ ? held_arrays_ : here().text) += ahead.declarations();
  for (const Stage::Level& level : ahead.levels)
    if (!level.text.empty()) here().text += each(level.text);
  here().text += gathering(all, each(body));
}

}  // namespace kiln::codegen
