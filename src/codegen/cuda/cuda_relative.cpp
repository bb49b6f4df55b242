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
  const std::string name = found->second, x = lane(st.value);
  line(cat(name, at, " = ", x, ';'));
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
    const std::string none = cuda_constant(a.type, k_.customs[a.custom].identity[0]);
    before += cat(cuda_type(a.type), ' ', name, s.lanes ? cat('[', lanes_, ']') : "", '[', count, "];\n");
    before += cat(each, all, name, own, "[i] = ", none, ";\n");
    after += cat(each, s.name, own, " = with<", op_of(a), ">(", s.name, own, ", ", name, own, ");\n");
  }
  return before + body + after;
}

}  // namespace kiln::codegen
