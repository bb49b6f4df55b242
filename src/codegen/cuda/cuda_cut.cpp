// CudaEmitter: Vector loops whose vectors begin where those of memory do (LoopDecl::early): rows that begin
// anywhere, by whole vectors. The first and the last vector of a row may have elements of the rows beside it:
// they are loaded, since a vector lies in the memory that one of its elements is in, but neither combined nor
// stored.
#include "codegen/cuda/cuda_function.h"

#include <algorithm>

namespace kiln::codegen {

/// Which lanes of the vector at `i` are there. Only the first of several steps begins early.
std::string CudaEmitter::cut_lanes(const std::string& i, bool in_steps) const {
  return cat("const int from = ", in_steps ? "k > 0 ? 0 : " : "", "int(-", i, "), left = int(", extent_,
             " - ", i, ");\n");
}

/// The condition under which a lane is there; empty where all are, or this is no lane.
std::string CudaEmitter::lanes_there() const {
  return reach_ == Reach::Cut && in_run_ ? "v >= from && v < left" : "";
}

void CudaEmitter::cut_vectors(const LoopDecl& l, const std::string& extent) {
  KILN_CHECK_THAT(l.lanes > 1 && rows_inside(k_, l) == 1 && l.rows == 1, "rows of threads along cut vectors");
  lanes_ = l.lanes;
  steps_ = l.steps;
  extent_ = extent;
  early_ = index_text(l.early);
  here().text += scans(l)     ? steps_ > 0 ? scanning_steps(l, extent) : scanning(l, extent)
                     : steps_ > 0 ? steps(l, Reach::Cut)
                              : cut_batches(l);
  lanes_ = 1;
  steps_ = 0;
  early_.clear();
  reach_ = Reach::Whole;
}

/// Such a loop of unknown length: batches of vectors, all of whose loads come first.
std::string CudaEmitter::cut_batches(const LoopDecl& l) {
  const std::string base = fresh("b");
  steps_ = std::max(1, ahead_of(l));
  const std::string text = steps(l, Reach::Cut, base);
  return cat("for (", index_type(), ' ', base, " = 0; ", base, " < ", extent_, " + ", early_, "; ", base,
             " += ", steps_ * width_ * lanes_, ") {\n", text, "}\n");
}

}  // namespace kiln::codegen
