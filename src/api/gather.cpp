// Indexing by tensors: every form becomes the one gather node, views around it, and arithmetic on the
// indices.
#include "api/indices.h"
#include "support/check.h"

namespace kiln {
namespace {

using api::checked;
using api::checked_indices;
using api::describe;
using ir::NodeRef;

void require_elements(std::string_view op, const ir::Node* x, std::int64_t extent, std::int64_t wanted) {
  if (extent == 0 && wanted != 0) throw UserError(cat("[", op, "] nothing to take from in ", describe(x)));
}

/// Slices of `from` along axis a at indices; `whole` as in api::Joint.
Tensor take_slices(ir::Node* from, ir::Node* at, int a, const Shape& whole) {
  const api::Slices slices = api::slices_at(from, a, at);
  const NodeRef flat = api::reshape_node(at, slices.along);
  const NodeRef taken = api::gather_node(from, flat.get(), {static_cast<std::size_t>(a), whole}, slices.flat);
  return api::finish(api::reshape_node(taken.get(), slices.full));
}

}  // namespace

Tensor take(const Tensor& x, const Tensor& indices, std::optional<Axis> axis, SourceLocation loc) {
  const CallScope scope("take", loc);
  ir::Node* const whole = checked("take", x);
  ir::Node* const at = checked_indices("take", indices);
  const NodeRef from = axis ? NodeRef::share(whole) : api::reshape_node(whole, Shape{whole->numel});
  const int a = axis ? api::checked_axis("take", *axis, whole) : 0;
  require_elements("take", whole, from->dims()[static_cast<std::size_t>(a)], at->numel);
  return take_slices(from.get(), at, a, {});
}

Tensor take_along_axis(const Tensor& x, const Tensor& indices, Axis axis, SourceLocation loc) {
  const CallScope scope("take_along_axis", loc);
  ir::Node* const from = checked("take_along_axis", x);
  ir::Node* const at = checked_indices("take_along_axis", indices);
  if (from->rank != at->rank)
    throw UserError(
        cat("[take_along_axis] needs indices of x's rank: x ", describe(from), ", indices ", describe(at)));
  const int a = api::checked_axis("take_along_axis", axis, from);
  Shape dims;
  for (int i = 0; i < from->rank; ++i) {
    const std::int64_t here = from->dims()[static_cast<std::size_t>(i)],
                       there = at->dims()[static_cast<std::size_t>(i)];
    if (i != a && here != there && here != 1 && there != 1)
      throw UserError(cat("[take_along_axis] x ", describe(from), " and indices ", describe(at),
                          " do not broadcast along axis ", i));
    dims.push_back(i == a || here == 1 ? there : here);
  }
  require_elements("take_along_axis", from, from->dims()[static_cast<std::size_t>(a)], dims.numel());
  return api::finish(api::gather_node(from, at, {static_cast<std::size_t>(a)}, dims));
}

Tensor gather(const Tensor& x, std::span<const Tensor> indices, SourceLocation loc) {
  const CallScope scope("gather", loc);
  ir::Node* const from = checked("gather", x);
  if (indices.empty()) return x;
  const api::Joint joint = api::join_indices("gather", from, indices);
  ir::Node* const at = joint.position.node();
  require_elements("gather", from, joint.flat[0], at->numel);
  const NodeRef joined = api::reshape_node(from, joint.flat);
  return take_slices(joined.get(), at, 0, joint.whole);
}

Tensor gather(const Tensor& x, std::initializer_list<Tensor> indices, SourceLocation loc) {
  return gather(x, std::span(indices.begin(), indices.size()), loc);
}

}  // namespace kiln
