// CudaEmitter: accumulators that keep a greatest value and a sum relative to it. Several values at once take
// an exponential each and find their greatest first (`with` in kernels_templates/reduce.cuh); one after the
// other, each would also be compared with what is there, and choose which of both is relative to which.
//
// So what the steps of a loop give to such an accumulator is gathered in an array, which begins as the
// identity where steps or lanes may be missing, and is combined behind the last step.
#include "codegen/cuda/cuda_function.h"

#include "kernel/monoid.h"

#include <algorithm>

namespace kiln::codegen {

/// In the exact mode values are combined one after the other, as everywhere.
bool CudaEmitter::is_relative(const CustomMonoid& m) const {
  return !k_.exact && kernel::sums_relative(pool_, m);
}
bool CudaEmitter::is_relative(const AccDecl& a) const {
  return a.monoid == Monoid::Custom && is_relative(k_.customs[a.custom]);
}

/// Whether such a monoid's value is the logarithm of the sum, behind the greatest value.
bool CudaEmitter::shows_logarithm(const CustomMonoid& m) const {
  const ExprNode& n = pool_[m.show];
  const auto is_part = [&](ExprId e, std::uint64_t part) {
    return pool_[e].prim == Prim::Earlier && pool_[e].imm == part;
  };
  return is_relative(m) && n.prim == Prim::Add && n.type == DType::Float32 && is_part(n.a, 0) &&
         pool_[n.b].prim == Prim::Native &&
         pool_[n.b].imm == static_cast<std::uint64_t>(kernel::NativeFn::log) && is_part(pool_[n.b].a, 1);
}

/// Whether an accumulator's values, those of a scan (its running values, or the ones before) or final ones,
/// are rounded to half types at once: an approximate logarithm of their sums, which are 0 or no less than 1,
/// loses less than the sums have lost.
bool CudaEmitter::is_shown_roughly(std::uint32_t acc) const {
  const AccDecl& a = k_.accs[acc];
  if (a.monoid != Monoid::Custom || !shows_logarithm(k_.customs[a.custom])) return false;
  const auto is_of = [&](const ExprNode& n) {
    const bool shown = is_scan(acc) ? n.prim == Prim::Running || n.prim == Prim::Before : n.prim == Prim::Acc;
    return shown && n.imm == acc;
  };
  int rounded = 0, others = 0;
  for (ExprId e = 0; e < pool_.size(); ++e) {
    const ExprNode& n = pool_[e];
    if (is_of(n)) others += facts_.uses[e];
    if (n.prim == Prim::Cast && is_half(n.type) && facts_.uses[e] > 0 && is_of(pool_[n.a])) ++rounded;
  }
  return rounded > 0 && rounded == others;
}
bool CudaEmitter::is_any_shown_roughly(std::size_t custom) const {
  for (std::uint32_t id = 0; id < k_.accs.size(); ++id)
    if (k_.accs[id].monoid == Monoid::Custom && k_.accs[id].custom == custom && is_shown_roughly(id))
      return true;
  return false;
}

/// Whether a custom monoid's structure must say how.
bool CudaEmitter::combines_several(std::size_t custom) const {
  for (std::uint32_t id = 0; id < k_.accs.size(); ++id)
    if (k_.accs[id].monoid == Monoid::Custom && k_.accs[id].custom == custom)
      return is_relative(k_.customs[custom]);
  return false;
}

/// Whether statements of a loop's own give an accumulator its values.
bool CudaEmitter::gathers(const LoopDecl& l, std::uint32_t acc) const {
  return std::any_of(l.body.begin(), l.body.end(), [&](const Stmt& s) {
    return s.kind == Stmt::Kind::Update && s.target == acc && is_relative(k_.accs[acc]) && !is_scan(acc);
  });
}
bool CudaEmitter::gathers(const LoopDecl& l) const {
  return std::any_of(l.body.begin(), l.body.end(),
                     [&](const Stmt& s) { return s.kind == Stmt::Kind::Update && gathers(l, s.target); });
}

/// An update of such an accumulator in a loop that gathers; false where it is none.
bool CudaEmitter::gather(const Stmt& st) {
  if (gathering_.steps == 0 || !is_relative(k_.accs[st.target]) || !on_.empty()) return false;
  const AccState& s = accs_[st.target];
  auto& arrays = gathering_.arrays;
  auto found =
      std::find_if(arrays.begin(), arrays.end(), [&](const auto& a) { return a.first == st.target; });
  if (found == arrays.end()) found = arrays.insert(found, {st.target, fresh("w")});
  const std::string step = gathering_.steps > 1 ? "k" : "0";
  const std::string at = s.lanes      ? cat("[v][", step, ']')
                         : lanes_ > 1 ? cat('[', step, " * ", lanes_, " + v]")
                                      : cat('[', step, ']');
  const std::string name = found->second, x = lane(st.value), there = lanes_there();
  line(cat(there.empty() ? "" : cat("if (", there, ") "), name, at, " = ", x, ';'));
  return true;
}

/// The text of all steps with what they gather. (What every step sets needs no beginning; the compiler sees
/// that.)
std::string CudaEmitter::gathering(const Gathering& g, const std::string& body) const {
  std::string before, after;
  for (const auto& [acc, name] : g.arrays) {
    const AccDecl& a = k_.accs[acc];
    const AccState& s = accs_[acc];
    const int count = g.steps * (s.lanes ? 1 : lanes_);
    const std::string all = cat("#pragma unroll\nfor (int i = 0; i < ", count, "; ++i) "),
                      each = s.lanes ? cat("#pragma unroll\nfor (int v = 0; v < ", lanes_, "; ++v)\n") : "",
                      own = s.lanes ? "[v]" : "";
    const DType kept = k_.customs[a.custom].types[0];  // a wider value is of that
    const std::string none = cuda_constant(kept, k_.customs[a.custom].identity[0]);
    before += cat(cuda_type(kept), ' ', name, s.lanes ? cat('[', lanes_, ']') : "", '[', count, "];\n");
    before += cat(each, all, name, own, "[i] = ", none, ";\n");
    const std::string before_all = g.first ? "" : cat(s.name, own, ", ");
    after += cat(each, s.name, own, " = with<", op_of(a), ">(", before_all, name, own, ");\n");
  }
  return before + body + after;
}

}  // namespace kiln::codegen
