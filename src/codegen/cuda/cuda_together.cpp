// CudaEmitter: serial loops along which several adjacent elements are one access (LoopDecl::steps).
//
// Invariant: the first of the iterations that have an access together is a multiple of their number, and so
// is whatever their indices divide by it.
#include "codegen/cuda/cuda_function.h"

#include <algorithm>
#include <utility>

namespace kiln::codegen {

constexpr int kWords = 4;  // adjacent columns of a thread, where these are no narrow elements

/// Whether the iterations of a loop read or write the block's memory, where a thread goes along a row of its
/// own.
bool CudaEmitter::goes_by_words(const LoopDecl& l) const {
  if (l.kind != LoopKind::Serial || l.steps < 2 || l.rows > 1 || lanes_ > 1) return false;
  const auto shared = [&](auto& self, ExprId e) -> bool {
    if (e == kNoExpr) return false;
    const ExprNode& n = pool_[e];
    if (n.prim == Prim::Load && k_.buffers[n.imm].shared > 0) return true;
    bool any = false;
    each_operand(n, [&](ExprId o) { any = any || self(self, o); });
    return any;
  };
  return std::ranges::any_of(l.body, [&](const Stmt& s) {
    return (s.kind == Stmt::Kind::Store && k_.buffers[s.target].shared > 0) || shared(shared, s.value);
  });
}

/// An element of a vector along the serial loop at hand, all of which is loaded once; empty where it is none.
std::string CudaEmitter::loaded_together(ExprId e) {
  const ExprNode n = pool_[e];
  if (together_.depth == 0 || at_.depth_of(e) != together_.depth || n.b != kNoExpr || is_bool(n.type))
    return {};
  if (const auto it = together_.loaded.find(e); it != together_.loaded.end()) return it->second;
  const bool on_lanes = lanes_ > 1 && at_.varying(e);
  const BufferDecl& from = k_.buffers[n.imm];
  if ((from.role != BufferDecl::Role::In && from.shared == 0) || on_lanes || !ascends(n.a, together_.var))
    return {};
  const std::string name = fresh("x");
  const bool was_in_run = std::exchange(in_run_, false);
  const auto swap = [&] {
    Scope& scope = scopes_[static_cast<std::size_t>(together_.depth)];
    std::swap(scope.text, together_.text);
    std::swap(scope.memo, together_.memo);
  };
  swap();
  const std::string at = index_text(n.a);
  scopes_[static_cast<std::size_t>(together_.depth)].text +=
      cat(name, " = load<", together_.together, ">(", buffer_name(n.imm), " + ", at, ");\n");
  swap();
  in_run_ = was_in_run;
  together_.declarations +=
      cat("vec<", cuda_memory_type(n.type), ", ", together_.together, "> ", name, ";\n");
  return together_.loaded[e] = name + ".at[k]";
}

/// Puts an element that several iterations store to the block's memory at once with the others of them; false
/// where it is none.
bool CudaEmitter::store_together(const Stmt& s) {
  const BufferDecl& d = k_.buffers[s.target];
  if (together_.depth == 0 || depth() != together_.depth || d.shared == 0 || lanes_ > 1 || in_run_ ||
      reach_ != Reach::Whole || !on_.empty() || once_ || !ascends(s.index, together_.var))
    return false;
  const std::string name = fresh("y"), x = value(s.value);
  line(cat(name, ".at[k] = ", is_bool(d.dtype) ? cat("uint8(", x, ')') : x, ';'));
  const auto swap = [&] {
    std::swap(here().text, together_.after);
    std::swap(here().memo, together_.after_memo);
  };
  swap();
  const std::string at = index_text(s.index);
  here().text += cat("store(", buffer_name(s.target), " + ", at, ", ", name, ");\n");
  swap();
  together_.declarations +=
      cat("vec<", cuda_memory_type(d.dtype), ", ", together_.together, "> ", name, ";\n");
  return true;
}

/// A serial loop whose extent is a multiple of the iterations that have loads together. What else these load
/// ahead comes by halves, each while the other half is computed: the assembler would let each wait for its
/// load otherwise, to save registers.
std::string CudaEmitter::by_vectors(const LoopDecl& l, const std::string& first, const std::string& end,
                                    const Together& loads, const Stage& ahead, const std::string& body) {
  const Gathering all = std::exchange(gathering_, {});
  const int half = loads.together / 2;
  const std::string base = fresh("b"), i = cat("const ", index_type(), " i", l.var, " = ");
  const auto each = [&](int from, int to, const std::string& at, const std::string& text) {
    return cat("#pragma unroll\nfor (int k = ", from, "; k < ", to, "; ++k) {\n", i, at, " + k;\n", text,
               "}\n");
  };
  const auto load = [&](int from, int to, const std::string& at) {
    std::string out;
    for (const Stage::Level& level : ahead.levels)
      if (!level.text.empty()) out += each(from, to, at, level.text);
    return out;
  };
  std::string out = cat(index_type(), ' ', base, " = ", first, ";\n", ahead.declarations());
  if (!ahead.loaded.empty()) out += cat("if (", base, " < ", end, ") {\n", load(0, half, base), "}\n");
  out += cat("for (; ", base, " < ", end, "; ", base, " += ", loads.together, ") {\n", loads.declarations,
             "{\n", i, base, ";\n", loads.text, "}\n", load(half, loads.together, base));
  if (ahead.loaded.empty()) {
    constexpr int kFewResults = 32;  // registers
    few_results_ |= !goes_by_words(l) && lanes_ == 1 && k_.threads.team > 32 &&
                    registers_of_accs() <= kFewResults &&
                    std::ranges::none_of(k_.accs, [](const AccDecl& a) { return a.compensated; });
    out += gathering(all, each(0, loads.together, base, body));
    return out + (loads.after.empty() ? "}\n" : cat("{\n", i, base, ";\n", loads.after, "}\n}\n"));
  }
  by_halves_ |= lanes_ <= kWords;
  const std::string next = fresh("n");
  return out + each(0, half, base, body) +
         cat("const ", index_type(), ' ', next, " = ", base, " + ", loads.together, " < ", end, " ? ", base,
             " + ", loads.together, " : ", base, ";\n") +
         load(0, half, next) + each(half, loads.together, base, body) + "}\n";
}

}  // namespace kiln::codegen
