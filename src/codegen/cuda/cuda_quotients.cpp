// CudaEmitter: values that differ between the lanes of a vector by a quotient alone (what belongs to the row
// that a lane's element lies in). A quotient has two values at most where all divisors are at least as many
// as the lanes (LoopDecl::again): both are computed, and each lane takes one.
//
// Invariant: what is behind the last lane that is there is not asked for.
#include "codegen/cuda/cuda_function.h"

#include <utility>

namespace kiln::codegen {

const CudaEmitter::Differs& CudaEmitter::differs(ExprId e) {
  if (const auto known = differs_.find(e); known != differs_.end()) return known->second;
  Differs out;
  const ExprNode n = pool_[e];
  if (at_.varying(e)) {
    out.any = true;
    const bool leaf = n.prim == Prim::Var || n.prim == Prim::Acc || n.prim == Prim::Running ||
                      n.prim == Prim::Before ||
                      (n.prim == Prim::Load && k_.buffers[n.imm].role != BufferDecl::Role::In);
    if (n.prim == Prim::IndexDiv && !at_.varying(n.b) && kernel::known(at_.lane_stride(n.a)) == 1) {
      out.quotient = e;
    } else {
      out.otherwise = leaf;
      each_operand(n, [&](ExprId o) {
        const Differs& d = differs(o);
        out.otherwise |= d.otherwise || (d.any && out.quotient != kNoExpr && out.quotient != d.quotient);
        if (d.any) out.quotient = d.quotient;
      });
    }
  }
  return differs_[e] = out;
}

/// The value on lane `v` of what differs by a quotient alone; empty where it does not.
std::string CudaEmitter::two_valued(ExprId e) {
  if (!two_quotients_ || rounds_ > 0 || !on_.empty() || reach_ == Reach::Ragged || !windows_.empty() ||
      together_.depth > 0)
    return {};
  const Differs d = differs(e);
  const auto depth = static_cast<std::size_t>(at_.lanes_depth());
  if (!d.any || d.otherwise || at_.depth_of(e) != at_.lanes_depth() || scopes_.size() - 1 != depth) return {};
  const bool was_in_run = std::exchange(in_run_, false);
  const Stage around = std::exchange(stage_, {});
  Scope& scope = scopes_[depth];
  const ExprNode q = pool_[d.quotient];
  const auto found = quotients_.find(d.quotient);
  const bool first = found == quotients_.end();
  Quotient& quotient = first ? quotients_[d.quotient] : found->second;
  if (first) {
    const bool cut = reach_ == Reach::Cut,
               by_inverse = q.imm != 0 && k_.threads.narrow && pool_[q.b].prim == Prim::Param;
    const std::string at = index_text(q.a), by = index_text(q.b);
    std::string start = at, row;
    if (cut) {  // a vector that begins before its row has the quotient of the row's first element
      start = fresh("s");
      row = fresh("q");
      scope.text += cat("const ", index_type(), ' ', start, " = max_of(", at, ", ", index_type(),
                        "(0));\nconst ", index_type(), ' ', row, " = index_div(", start, ", ", by,
                        by_inverse ? cat(", p", q.imm - 1) : std::string(), ");\n");
      scope.memo[d.quotient] = row;
    } else {
      row = value(d.quotient);
    }
    const std::string next = fresh("q");
    quotient.grows = fresh("grows");
    scope.text +=
        cat("const int ", quotient.grows, " = int(", by, " - (", at, " - ", row, " * ", by, "));\n", "const ",
            index_type(), ' ', next, " = ", row, " + (", quotient.grows, " < ",
            cut || masked(static_cast<int>(depth)) ? cat("(left < ", lanes_, " ? left : ", lanes_, ')')
                                                   : std::to_string(lanes_),
            " ? 1 : 0);\n");
    quotient.behind[d.quotient] = next;
  }
  const std::string before = value(e);
  std::swap(scope.memo, quotient.behind);
  const std::string behind = value(e);
  std::swap(scope.memo, quotient.behind);
  stage_ = around;
  in_run_ = was_in_run;
  return keep(e, cat("(v < ", quotient.grows, " ? ", before, " : ", behind, ')'), true, run_text_, run_memo_);
}

}  // namespace kiln::codegen
