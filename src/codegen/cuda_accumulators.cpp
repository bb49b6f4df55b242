// CudaEmitter: reductions, over the lanes of a thread by halves, then over the team.
#include "codegen/cuda_function.h"

#include "kernel/monoid.h"

namespace kiln::codegen {

std::string CudaEmitter::acc_type(const AccDecl& a) const {
  return kernel::positional(a.monoid) ? cat("Best<", cuda_type(a.type), '>') : cuda_type(a.type);
}

void CudaEmitter::begin_accs(const LoopDecl& l) {
  if (l.accs.empty()) return;
  at_.begin_accs(l);
  for (std::uint32_t id : l.accs) {
    const LoopDecl* inside = at_.lanes_depth() ? nullptr : kernel::vector_loop_of(k_, l, id);
    const int lanes = inside ? inside->lanes : at_.lanes_depth() ? lanes_ : 1;
    const AccDecl& a = k_.accs[id];
    AccState& s = accs_[id];
    s.name = fresh("a");
    s.lanes = lanes > 1 && !(is_scan(id) && inside);  // a scan over the team hands on one value
    std::string start = cuda_constant(a.type, kernel::identity(a));
    if (kernel::positional(a.monoid)) start = cat('{', start, ", 0x7fffffffffffffffll}");
    if (!s.lanes) {
      line(cat(acc_type(a), ' ', s.name, " = ", start, ';'));
      continue;
    }
    std::string all = start;
    for (int v = 1; v < lanes; ++v) all += ", " + start;
    line(cat(acc_type(a), ' ', s.name, '[', lanes, "] = {", all, "};"));
  }
}

void CudaEmitter::update(const Stmt& st) {
  const AccDecl& a = k_.accs[st.target];
  const AccState& s = accs_[st.target];
  if (a.monoid == Monoid::State) return update_state(st);
  if (is_scan(st.target)) return scan_alone(st);
  const std::string acc = s.lanes ? s.name + "[v]" : s.name, to = on_.empty() ? acc : cat("if (", on_, ") ", acc);
  const ExprNode product = pool_[st.value];
  if (a.monoid == Monoid::Sum && is_float(a.type) && product.prim == Prim::Mul && k_.fma) {
    const std::string x = lane(product.a), y = lane(product.b);
    line(cat(to, a.type == DType::Float32 ? " = __fmaf_rn(" : " = __fma_rn(", x, ", ", y, ", ", acc, ");"));
    return;
  }
  const std::string x = lane(st.value);
  if (kernel::positional(a.monoid)) {
    const std::string at = lane_index_text(st.index);
    line(cat(to, " = ", cuda_monoid(a.monoid), "::of(", acc_type(a), '{', x, ", int64(", at, ")}, ", acc, ");"));
  } else if (a.monoid == Monoid::Sum && is_float(a.type)) {
    line(cat(to, " += ", x, ';'));
  } else {
    line(cat(to, " = ", cuda_monoid(a.monoid), "::of(", x, ", ", acc, ");"));
  }
}

/// Final values: over the lanes by halves, then over the team.
void CudaEmitter::end_accs(const LoopDecl& l) {
  for (std::uint32_t id : l.accs) {
    const AccDecl& a = k_.accs[id];
    AccState& s = accs_[id];
    std::string v = s.name;
    if (l.rows > 1) {
      KILN_CHECK_THAT(at_.lanes_of(id) == Lanes::Around, "parts of a team without columns");
      line(cat("reduce_rows<", cuda_monoid(a.monoid), ", ", width_, ", ", l.rows, ">(", s.name, ");"));
    }
    if (at_.lanes_of(id) == Lanes::Inside && !is_scan(id)) {
      if (s.lanes) v = combine_lanes(a, s.name, 0, kernel::vector_loop_of(k_, l, id)->lanes);
      const std::string op = cuda_monoid(a.monoid);
      if (team_ > 32 || team_ == k_.threads.block)
        v = cat("reduce_block<", op, ", ", k_.threads.block, ">(", v, ", turn)");
      else if (team_ > 1)
        v = cat("reduce_lanes<", op, ", ", team_, ">(", v, ", members)");
      const std::string name = fresh("r");
      line(cat("const ", acc_type(a), ' ', name, " = ", v, ';'));
      v = name;
    } else if (s.lanes) {
      v += "[v]";
    }
    s.result = kernel::positional(a.monoid) ? v + ".position" : v;
  }
}

std::string CudaEmitter::combine_lanes(const AccDecl& a, const std::string& name, int first, int count) const {
  if (count == 1) return cat(name, '[', first, ']');
  const std::string x = combine_lanes(a, name, first, count / 2), y = combine_lanes(a, name, first + count / 2, count / 2);
  return a.monoid == Monoid::Sum && is_float(a.type) ? cat('(', x, " + ", y, ')')
                                                     : cat(cuda_monoid(a.monoid), "::of(", x, ", ", y, ')');
}

}  // namespace kiln::codegen
