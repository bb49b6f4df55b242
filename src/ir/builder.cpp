#include "ir/builder.h"

#include "support/check.h"

#include <algorithm>

namespace kiln::ir {

NodeId Builder::push(GraphNode n) {
  g_.nodes.push_back(std::move(n));
  return g_.size() - 1;
}

void Builder::complete(GraphNode& n, const Stated& stated) {
  types_.clear();
  for (const NodeId x : n.in) types_.push_back({g_[x].dtype, g_[x].dims});
  const Inferred made = infer(n.op, types_, stored(n), stated);
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
