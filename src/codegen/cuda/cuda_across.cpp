// CudaEmitter: values of all columns of a row, which the threads of a part of the team have, come together as
// the loop down the columns runs (Stmt::Kind::Across). A thread keeps what its own columns give of several
// rows; then each lane gets the total of one of them.
//
// Invariant: all threads of a part make the same iterations, those without a column too.
#include "codegen/cuda/cuda_function.h"

#include <algorithm>

namespace kiln::codegen {

/// Whether values come together in the loops inside a Vector loop, or directly inside another.
bool CudaEmitter::crosses(const LoopDecl& l) const {
  return std::ranges::any_of(l.body, [&](const Stmt& s) {
    const bool inside = s.kind == Stmt::Kind::Loop && l.kind == LoopKind::Vector;
    return s.kind == Stmt::Kind::Across || (inside && holds_across(k_.loops[s.target]));
  });
}

bool CudaEmitter::holds_across(const LoopDecl& l) const {
  return std::ranges::any_of(l.body, [&](const Stmt& s) {
    return s.kind == Stmt::Kind::Across || (s.kind == Stmt::Kind::Loop && holds_across(k_.loops[s.target]));
  });
}

/// Iterations whose rows come together at a time, a power of two: few of a long body.
int CudaEmitter::rows_across(bool in_flight, int at_once) const {
  constexpr int kMost = 16, kOfLong = 2;
  return std::min({width_, kMost, in_flight ? at_once : kOfLong});
}

/// What a thread has of a row so far.
void CudaEmitter::across(const Stmt& st) {
  const AccDecl& a = k_.accs[st.acc];
  const std::string name = across_.emplace_back(&st, fresh("c")).name;
  const std::string x = lane(st.value), place = name + "[k]",
                    there = !masked(depth()) ? ""
                            : in_run_        ? "if (v < left) "
                                             : "if (left > 0) ";
  line(cat(there, place, " = ", op_of(a), "::of(", lifted(a, x), ", ", place, ");"));
}

/// Declares what the threads have of the rows of a batch.
std::string CudaEmitter::begin_across(const std::vector<Across>& all, int batch) const {
  std::string out;
  for (const Across& x : all) {
    const AccDecl& a = k_.accs[x.statement->acc];
    out += cat(acc_type(a), ' ', x.name, '[', batch, "];\n#pragma unroll\nfor (int k = 0; k < ", batch,
               "; ++k) ", x.name, "[k] = ", start_of(a), ";\n");
  }
  return out;
}

/// Puts the rows of a batch together, and stores them. `base`: the iteration that the batch begins with.
std::string CudaEmitter::end_across(const LoopDecl& l, const std::vector<Across>& all, int batch,
                                    const std::string& base, const std::string& end) {
  const std::string members =
      width_ == 32 ? "0xffffffffu"
                   : cat((1u << width_) - 1, "u << (threadIdx.x % 32 / ", width_, " * ", width_, ')');
  std::string out;
  for (const Across& x : all) {
    const AccDecl& a = k_.accs[x.statement->acc];
    const std::string total = fresh("c"), i = cat('i', l.var);
    out += cat("const ", acc_type(a), ' ', total, " = reduce_each<", op_of(a), ", ", width_, ">(", x.name,
               ", ", members, ");\n");
    open_scope(l, i);
    const std::string at = index_text(x.statement->index);
    line(cat(buffer_name(x.statement->target), '[', at, "] = ", shown(a, total), ';'));
    const std::string text = close_scope();
    out += cat("if (", lane_, " % ", width_ / batch, " == 0) {\nconst ", index_type(), ' ', i, " = ", base,
               " + ", lane_, " / ", width_ / batch, " * ", l.rows, ";\nif (", i, " < ", end, ") {\n", text,
               "}\n}\n");
  }
  return out;
}

}  // namespace kiln::codegen
