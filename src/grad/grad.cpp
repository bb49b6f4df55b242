// What kiln/grad.h calls that is no template.
#include <kiln/grad.h>

#include "grad/tape.h"
#include "support/check.h"

#include <kiln/ops.h>

namespace kiln {
namespace detail {

TapeHandle::TapeHandle(std::string_view op) : tape_(std::make_shared<diff::Tape>(op)) {}

std::vector<Tensor> TapeHandle::primals(std::span<const Tensor> leaves, std::span<const std::string> names,
                                        std::size_t argument) const {
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < leaves.size(); ++i)
    out.push_back(tape_->primal(leaves[i], cat("argument ", argument, names[i].empty() ? "" : ", " + names[i],
                                               names[i].empty() ? "" : ",")));
  return out;
}

void TapeHandle::close(std::span<const Tensor> results) const { tape_->close(results); }
void TapeHandle::close_loss(const Tensor& loss) const { tape_->close_loss(loss); }

std::vector<Tensor> TapeHandle::pull(std::span<const Tensor> cotangents) const {
  return tape_->pull(cotangents);
}
std::vector<Tensor> TapeHandle::push(std::span<const Tensor> tangents) const { return tape_->push(tangents); }

std::vector<Tensor> TapeHandle::pull_loss() const { return tape_->pull_loss(); }

Tensor jacobian_of(const TapeHandle& tape, const Tensor& y, const Tensor& x) {
  const std::int64_t rows = y.numel(), columns = x.numel();
  Shape dims = y.shape();
  for (const std::int64_t d : x.shape()) dims.push_back(d);
  if (rows == 0 || columns == 0) return zeros(dims, y.dtype());
  const bool backward = rows <= columns;
  const Tensor& start = backward ? y : x;
  const Tensor count = reshape(arange(start.numel(), DType::Int64), start.shape());
  std::vector<Tensor> passes;
  for (std::int64_t i = 0; i < start.numel(); ++i) {
    const Tensor one = (count == i).astype(start.dtype());
    passes.push_back(backward ? tape.pull({&one, 1})[0] : tape.push({&one, 1})[0]);
  }
  return reshape(stack(passes, backward ? 0 : -1), dims);
}

}  // namespace detail

Tensor stop_gradient(const Tensor& x, SourceLocation loc) {
  const CallScope scope("stop_gradient", loc);
  return api::finish(api::alias_node(api::checked("stop_gradient", x), true));
}

}  // namespace kiln
