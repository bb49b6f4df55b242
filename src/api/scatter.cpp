// Writing at indices: every form becomes the one scatter node, views around it, and arithmetic on the
// indices.
#include "api/indices.h"
#include "support/check.h"

namespace kiln {
namespace {

using api::checked;
using api::checked_indices;
using api::describe;
using ir::NodeRef;

void require_combines(std::string_view op, const ir::Node* x, Combine how) {
  if (is_only_stored(x->dtype) && how != Combine::Set)
    throw UserError(cat("[", op, "] only sets elements of ", describe(x), ": astype makes numbers of them"));
  if (is_bool(x->dtype) && (how == Combine::Add || how == Combine::Multiply))
    throw UserError(cat("[", op, "] cannot ", how == Combine::Add ? "add to " : "multiply ", describe(x)));
}

/// The values as x's dtype and of the selected shape, seen as `flat`; `whole` as in api::Joint.
NodeRef fitted(std::string_view op, const ir::Node* x, const Operand& values, const Shape& selected,
               const Shape& flat, const Shape& whole = {}) {
  const NodeRef given = values.tensor ? api::cast_node(checked(op, *values.tensor), x->dtype)
                                      : api::scalar_node(values.scalar, x->dtype);
  const Shape from = given->shape();
  bool fits = from.rank() <= selected.rank();
  for (int i = 0; i < from.rank() && fits; ++i) {
    const std::int64_t want = selected[selected.rank() - from.rank() + i];
    fits = from[i] == want || from[i] == 1;
  }
  if (!fits)
    throw UserError(cat("[", op, "] values ", describe(given.get()),
                        " do not broadcast to the selected shape ", selected.str(), " of ", name(x->dtype),
                        " ", whole.empty() ? x->shape() : whole));
  const NodeRef all = api::broadcast_node(given.get(), selected);
  return api::reshape_node(all.get(), flat);
}

/// x with values written along axis a at indices; `whole` as in api::Joint.
NodeRef written_slices(ir::Node* to, ir::Node* at, const Operand& values, int a, Combine how,
                       const Shape& whole) {
  const api::Slices slices = api::slices_at(to, a, at);
  const NodeRef written = fitted("scatter", to, values, slices.full, slices.flat, whole);
  const NodeRef where = api::reshape_node(at, slices.along);
  return api::scatter_node(to, where.get(), written.get(), {static_cast<std::size_t>(a), how, whole});
}

}  // namespace

Tensor scatter(const Tensor& x, const Tensor& indices, const Operand& values, Axis axis, Combine how) {
  const CallScope scope("scatter", values.loc);
  ir::Node* const to = checked("scatter", x);
  ir::Node* const at = checked_indices("scatter", indices);
  require_combines("scatter", to, how);
  const int a = api::checked_axis("scatter", axis, to);
  return api::finish(written_slices(to, at, values, a, how, {}));
}

Tensor scatter(const Tensor& x, std::span<const Tensor> indices, const Operand& values, Combine how) {
  const CallScope scope("scatter", values.loc);
  ir::Node* const to = checked("scatter", x);
  if (indices.empty()) throw UserError(cat("[scatter] no indices for ", describe(to)));
  const api::Joint joint = api::join_indices("scatter", to, indices);
  require_combines("scatter", to, how);
  const NodeRef joined = api::reshape_node(to, joint.flat);
  const NodeRef out = written_slices(joined.get(), joint.position.node(), values, 0, how, joint.whole);
  return api::finish(api::reshape_node(out.get(), to->dims()));
}

Tensor scatter(const Tensor& x, std::initializer_list<Tensor> indices, const Operand& values, Combine how) {
  return scatter(x, std::span(indices.begin(), indices.size()), values, how);
}

Tensor put_along_axis(const Tensor& x, const Tensor& indices, const Operand& values, Axis axis, Combine how) {
  const CallScope scope("put_along_axis", values.loc);
  ir::Node* const to = checked("put_along_axis", x);
  ir::Node* const at = checked_indices("put_along_axis", indices);
  require_combines("put_along_axis", to, how);
  if (to->rank != at->rank)
    throw UserError(
        cat("[put_along_axis] needs indices of x's rank: x ", describe(to), ", indices ", describe(at)));
  const int a = api::checked_axis("put_along_axis", axis, to);
  Shape dims = to->shape();
  for (int i = 0; i < to->rank; ++i) {
    const std::int64_t there = at->dims()[static_cast<std::size_t>(i)];
    if (i != a && there != dims[i] && there != 1)
      throw UserError(cat("[put_along_axis] indices ", describe(at), " do not broadcast to x ", describe(to),
                          " along axis ", i));
    if (i == a) dims[i] = there;
  }
  const NodeRef written = fitted("put_along_axis", to, values, dims, dims);
  return api::finish(api::scatter_node(to, at, written.get(), {static_cast<std::size_t>(a), how}));
}

}  // namespace kiln
