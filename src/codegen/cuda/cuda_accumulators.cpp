// CudaEmitter: reductions, over the lanes of a thread by halves, then over the team.
#include "codegen/cuda/cuda_function.h"

#include "kernel/monoid.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace kiln::codegen {

std::string CudaEmitter::acc_type(const AccDecl& a) const {
  if (a.monoid == Monoid::Custom) return parts_type(k_.customs[a.custom]);
  return kernel::positional(a.monoid) ? cat("Best<", cuda_type(a.type), ", ", index_type(), '>')
                                      : cuda_type(a.type);
}

/// The structure whose `of` combines two values, or their parts: one of the templates', or a custom monoid's.
std::string CudaEmitter::op_of(const AccDecl& a) const {
  return a.monoid == Monoid::Custom ? cat("Custom", a.custom) : std::string(cuda_monoid(a.monoid));
}
/// What an accumulator keeps of a value `x`, and the value of what it keeps.
std::string CudaEmitter::lifted(const AccDecl& a, const std::string& x) const {
  return a.monoid == Monoid::Custom ? cat(op_of(a), "::lift(", x, ')') : x;
}
std::string CudaEmitter::shown(const AccDecl& a, const std::string& x, bool roughly) const {
  return a.monoid == Monoid::Custom ? cat(op_of(a), roughly ? "::show_roughly(" : "::show(", x, ')') : x;
}

std::string CudaEmitter::parts_type(const CustomMonoid& m) {
  KILN_CHECK_THAT(m.types.size() <= 2, m.types.size(), " parts");
  return m.types.size() == 1 ? std::string(cuda_type(m.types[0]))
                             : cat("Pair<", cuda_type(m.types[0]), ", ", cuda_type(m.types[1]), '>');
}

std::string CudaEmitter::start_of(const AccDecl& a) const {
  if (kernel::positional(a.monoid))
    return cat('{', cuda_constant(a.type, kernel::identity(a)), ", ",
               k_.threads.narrow ? "0x7fffffff" : "0x7fffffffffffffffll", '}');
  if (a.monoid != Monoid::Custom) return cuda_constant(a.type, kernel::identity(a));
  const CustomMonoid& m = k_.customs[a.custom];
  std::string all;
  for (std::size_t p = 0; p < m.types.size(); ++p)
    all += cat(p ? ", " : "", cuda_constant(m.types[p], m.identity[p]));
  return m.types.size() == 1 ? all : cat('{', all, '}');
}

/// Whether what is kept of a value is a structure.
bool CudaEmitter::has_parts(const AccDecl& a) const {
  return kernel::positional(a.monoid) ||
         (a.monoid == Monoid::Custom && k_.customs[a.custom].types.size() > 1);
}

/// The start as an expression of its type.
std::string CudaEmitter::start_with_type(const AccDecl& a) const {
  return has_parts(a) ? acc_type(a) + start_of(a) : cat(acc_type(a), '(', start_of(a), ')');
}

/// The custom monoids as structures.
std::string CudaEmitter::customs() const {
  std::string out;
  for (std::size_t i = 0; i < k_.customs.size(); ++i) {
    const CustomMonoid& m = k_.customs[i];
    const std::string parts = parts_type(m), value = cuda_type(pool_[m.show].type);
    const bool one = m.types.size() == 1;
    const auto function = [&](const std::string& head, const std::vector<ExprId>& roots, bool of_value,
                              std::string body = {}) {
      std::unordered_map<ExprId, std::string> made;
      const auto part = [&](const char* of, std::uint64_t p) {
        return cat(of, one ? "" : p == 0 ? ".first" : ".second");
      };
      const auto spell = [&](auto& self, ExprId e) -> std::string {
        if (const auto it = made.find(e); it != made.end()) return it->second;
        const ExprNode& n = pool_[e];
        if (n.prim == Prim::Later) return of_value ? "later" : part("later", n.imm);
        if (n.prim == Prim::Earlier) return part("earlier", n.imm);
        if (n.prim == Prim::Const) return cuda_constant(n.type, n.imm);
        std::string in[3];
        int k = 0;
        each_operand(n, [&](ExprId o) { in[k++] = self(self, o); });
        const std::string name = cat('t', made.size());
        // The sign of a zero is not worth two instructions for each element: it does not show.
        const bool extreme =
            (n.prim == Prim::Min || n.prim == Prim::Max) && n.type == DType::Float32 && !k_.exact;
        const std::string text =
            extreme ? cat(n.prim == Prim::Min ? "least(" : "greatest(", in[0], ", ", in[1], ')')
                    : cuda_primitive(n, pool_[n.prim == Prim::Select ? n.b : n.a].type, false, in[0], in[1],
                                     in[2]);
        body += cat("const ", cuda_type(n.type), ' ', name, " = ", text, ";\n");
        return made[e] = name;
      };
      std::string result;
      for (ExprId e : roots) result += cat(result.empty() ? "" : ", ", spell(spell, e));
      return cat("static __device__ __forceinline__ ", head, " {\n", body, "return ",
                 roots.size() > 1 ? cat('{', result, '}') : result, ";\n}\n");
    };
    out += cat("struct Custom", i, " {\n", function(cat(parts, " lift(", value, " later)"), m.lift, true),
               function(cat(parts, " of(", parts, " later, ", parts, " earlier)"), m.merge, false),
               function(cat(value, " show(", parts, " earlier)"), {m.show}, false));
    if (combines_several(i)) {
      const std::string kept = cuda_type(m.types[0]), head = cat(kept, " weight(", kept, " d)");
      const ExprNode& sum = pool_[m.merge[1]];
      const ExprId factor = sum.prim == Prim::Fma ? sum.b : pool_[sum.a].b;
      out += "typedef void Relative;\n";
      if (is_any_shown_roughly(i))
        out += cat("static __device__ __forceinline__ ", value, " show_roughly(", parts,
                   " earlier) { return earlier.first + log_fast(earlier.second); }\n");
      out += m.types[0] == DType::Float32
                 ? cat("static __device__ __forceinline__ ", head,
                       " { return exp2_flushed(d * 0x1.715476p+0f); }\n")
                 : function(head, {factor}, false, cat("const ", parts, " later = {}, earlier = {d, 0};\n"));
    }
    out += "};\n";
  }
  return out;
}

/// What an expression depends on.
CudaEmitter::Walk CudaEmitter::walk(ExprId e, std::uint32_t var) const {
  Walk found;
  std::unordered_set<ExprId> seen;
  const auto visit = [&](auto& self, ExprId x) -> void {
    if (!seen.insert(x).second) return;
    const ExprNode& n = pool_[x];
    found.var |= n.prim == Prim::Var && n.imm == var;
    found.memory |= n.prim == Prim::Load || n.prim == Prim::Running || n.prim == Prim::Before;
    each_operand(n, [&](ExprId o) { self(self, o); });
  };
  visit(visit, e);
  return found;
}

/// Whether an index, used in the body of the loop of `var` but in no loop inside, is greater in each
/// iteration.
bool CudaEmitter::ascends(ExprId index, std::uint32_t var) const {
  // By the iterations that have accesses together, their quotient does not change.
  const auto stands = [&](auto& self, ExprId e) -> bool {
    const Walk w = walk(e, var);
    if (!w.var) return !w.memory;
    const ExprNode& x = pool_[e];
    if (x.prim == Prim::IndexDiv && together_.together > 1 && pool_[x.b].prim == Prim::Const &&
        static_cast<std::int64_t>(pool_[x.b].imm) == together_.together && ascends(x.a, var))
      return true;
    if (x.prim != Prim::IndexDiv && x.prim != Prim::Mul && x.prim != Prim::Add) return false;
    return self(self, x.a) && self(self, x.b);
  };
  const ExprNode& n = pool_[index];
  if (n.prim == Prim::Var) return n.imm == var;
  if (n.prim == Prim::Sub) return ascends(n.a, var) && stands(stands, n.b);
  return n.prim == Prim::Add &&
         ((ascends(n.a, var) && stands(stands, n.b)) || (ascends(n.b, var) && stands(stands, n.a)));
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
    s.gathered = inside && gathers(*inside, id);
    s.lanes =
        lanes > 1 && !((is_scan(id) || s.gathered) && inside);  // a scan over the team hands on one value
    s.ascending = std::any_of(l.body.begin(), l.body.end(), [&](const Stmt& st) {
      return st.kind == Stmt::Kind::Update && st.target == id && st.index != kNoExpr &&
             ascends(st.index, l.var);
    });
    const auto declare = [&](const std::string& name) {
      const std::string start = start_of(a);
      if (!s.lanes) return line(cat(acc_type(a), ' ', name, " = ", start, ';'));
      std::string all = start;
      for (int v = 1; v < lanes; ++v) all += ", " + start;
      line(cat(acc_type(a), ' ', name, '[', lanes, "] = {", all, "};"));
    };
    declare(s.name);
    s.lost = a.compensated ? fresh("lost") : std::string();
    if (!s.lost.empty()) declare(s.lost);
  }
  for (std::size_t i = 0; i < l.inits.size(); ++i)
    if (l.inits[i] != kNoExpr) begin_behind(l.accs[i], l.inits[i]);
}

/// Lets a scan begin with the value that comes before it.
void CudaEmitter::begin_behind(std::uint32_t acc, ExprId first) {
  const AccDecl& a = k_.accs[acc];
  const AccState& s = accs_[acc];
  KILN_CHECK_THAT(is_scan(acc) && !in_run_, "what comes before accumulator ", acc);
  const auto set = [&](const std::string& place, const std::string& x) {
    line(cat(s.name, place, " = ", lifted(a, x), ';'));
  };
  if (!s.lanes) return set("", value(first));
  in_run_ = true;
  set("[v]", lane(first));
  end_run();
}

void CudaEmitter::update(const Stmt& st) {
  const AccDecl& a = k_.accs[st.target];
  const AccState& s = accs_[st.target];
  if (a.monoid == Monoid::State) return update_state(st);
  if (is_scan(st.target)) return scan_alone(st);
  if (gather(st)) return;
  const std::string place = s.lanes ? "[v]" : "", acc = s.name + place;
  const std::string cut = lanes_there(),
                    on = !on_.empty()   ? cat("if (", on_, ") ")
                         : !cut.empty() ? cat("if (", cut, ") ")
                                        : std::string(),
                    to = on + acc;
  const std::string add_compensated =
      s.lost.empty() ? "" : cat(on, "add_compensated(", acc, ", ", s.lost, place, ", ");
  const ExprNode product = pool_[st.value];
  if (a.monoid == Monoid::Sum && is_float(a.type) && product.prim == Prim::Mul && k_.fma) {
    const std::string x = lane(product.a), y = lane(product.b);
    if (!add_compensated.empty()) return line(cat(add_compensated, x, ", ", y, ");"));
    line(cat(to, a.type == DType::Float32 ? " = __fmaf_rn(" : " = __fma_rn(", x, ", ", y, ", ", acc, ");"));
    return;
  }
  const std::string x = lane(st.value);
  if (!add_compensated.empty()) return line(cat(add_compensated, x, ");"));
  if (kernel::positional(a.monoid)) {
    const std::string at = cat(index_type(), '(', lane_index_text(st.index), ')');
    if (s.ascending)
      line(cat(to, " = ", op_of(a), "::then(", acc, ", ", x, ", ", at, ");"));
    else
      line(cat(to, " = ", op_of(a), "::of(", acc_type(a), '{', x, ", ", at, "}, ", acc, ");"));
  } else if (a.monoid == Monoid::Sum && is_float(a.type)) {
    line(cat(to, " += ", x, ';'));
  } else {
    line(cat(to, " = ", op_of(a), "::of(", lifted(a, x), ", ", acc, ");"));
  }
}

/// Final values: over the lanes by halves, then over the team.
void CudaEmitter::end_accs(const LoopDecl& l) {
  for (std::uint32_t id : l.accs) {
    const AccDecl& a = k_.accs[id];
    AccState& s = accs_[id];
    std::string v = s.name;
    if (!s.lost.empty()) {
      const LoopDecl* const inside =
          at_.lanes_of(id) == Lanes::Inside ? kernel::vector_loop_of(k_, l, id) : nullptr;
      const std::string place = s.lanes ? "[v]" : "";
      const int lanes = inside ? inside->lanes : lanes_;
      const std::string each = s.lanes ? cat("#pragma unroll\nfor (int v = 0; v < ", lanes, "; ++v) ") : "";
      line(cat(each, s.name, place, " = compensated(", s.name, place, ", ", s.lost, place, ");"));
    }
    if (l.rows > 1) {
      KILN_CHECK_THAT(at_.lanes_of(id) == Lanes::Around, "parts of a team without columns");
      line(cat("reduce_rows<", op_of(a), ", ", width_, ", ", l.rows, ">(", s.name, ");"));
    }
    if (at_.lanes_of(id) == Lanes::Inside && !is_scan(id)) {
      if (s.lanes) v = combine_lanes(a, s.name, 0, kernel::vector_loop_of(k_, l, id)->lanes);
      const std::string op = op_of(a);
      if (combines_in_block(k_.threads))
        v = cat("reduce_block<", op, ", ", k_.threads.block, ">(", v, ", turn)");
      else if (team_ > 1)
        v = cat("reduce_lanes<", op, ", ", team_, ">(", v, ", members)");
      const std::string name = fresh("r");
      line(cat("const ", acc_type(a), ' ', name, " = ", v, ';'));
      v = name;
    } else if (s.lanes) {
      v += "[v]";
    }
    s.result = kernel::positional(a.monoid) ? cat("found(", v, ".position)")
                                            : shown(a, v, !is_scan(id) && is_shown_roughly(id));
  }
}

std::string CudaEmitter::combine_lanes(const AccDecl& a, const std::string& name, int first,
                                       int count) const {
  if (count == 1) return cat(name, '[', first, ']');
  const std::string x = combine_lanes(a, name, first, count / 2),
                    y = combine_lanes(a, name, first + count / 2, count / 2);
  return a.monoid == Monoid::Sum && is_float(a.type) ? cat('(', x, " + ", y, ')')
                                                     : cat(op_of(a), "::of(", x, ", ", y, ')');
}

}  // namespace kiln::codegen
