#include "ir/builder.h"

#include "support/check.h"

#include <algorithm>

namespace kiln::ir {

NodeId Builder::push(const GraphNode& n) {
  g_.nodes.push_back(n);
  return g_.size() - 1;
}

void Builder::complete(GraphNode& n, std::initializer_list<NodeId> in, const Stated& stated) {
  KILN_CHECK_THAT(in.size() <= std::size(n.in), info(n.op).name, " has too many operands");
  Type types[std::size(n.in)];
  n.n_in = 0;
  std::ranges::fill(n.in, kNoNode);
  for (NodeId x : in) {
    types[n.n_in] = {g_[x].dtype, g_[x].dims};
    n.in[n.n_in++] = x;
  }
  const Inferred made = infer(n.op, std::span(types, n.n_in), stored(n), stated);
  KILN_CHECK_THAT(made.fault == nullptr, info(n.op).name, " ", made.fault);
  n.dtype = made.dtype;
  if (!std::ranges::equal(n.dims, made.dims)) n.dims = g_.keep(made.dims);
  n.numel = made.dims.numel();
}

void Builder::check_same(const GraphNode& n, const Type& type) {
  KILN_CHECK_THAT(n.dtype == type.dtype && std::ranges::equal(n.dims, type.dims), info(n.op).name,
                  " has another result than the node before");
}

}  // namespace kiln::ir
