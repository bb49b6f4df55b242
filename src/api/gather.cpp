// Indexing by tensors: every form becomes the one gather node, views around it, and arithmetic on the indices.
#include "api/record.h"
#include "support/check.h"

namespace kiln {
namespace {

using api::checked;
using api::describe;
using ir::NodeRef;

ir::Node* checked_indices(std::string_view op, const Tensor& indices) {
  ir::Node* const node = checked(op, indices);
  if (!is_int(node->dtype)) throw UserError(cat("[", op, "] indices must be integers, not ", describe(node)));
  return node;
}

void require_elements(std::string_view op, const ir::Node* x, std::int64_t extent, std::int64_t wanted) {
  if (extent == 0 && wanted != 0) throw UserError(cat("[", op, "] nothing to take from in ", describe(x)));
}

}  // namespace

Tensor take(const Tensor& x, const Tensor& indices, std::optional<int> axis, SourceLocation loc) {
  ir::Node* const whole = checked("take", x);
  ir::Node* const at = checked_indices("take", indices);
  const NodeRef from = axis ? NodeRef::share(whole) : api::reshape_node(whole, Shape{whole->numel}, loc);
  const int a = axis ? api::checked_axis("take", *axis, whole->dims()) : 0;
  require_elements("take", whole, from->dims()[static_cast<std::size_t>(a)], at->numel);
  Shape dims, along, result;  // the indices as one axis; their shape within x's rank; the result's shape
  for (int i = 0; i < from->rank; ++i) {
    const std::int64_t extent = from->dims()[static_cast<std::size_t>(i)];
    dims.push_back(i == a ? at->numel : extent);
    along.push_back(i == a ? at->numel : 1);
    if (i != a)
      result.push_back(extent);
    else
      for (std::int64_t d : at->dims()) result.push_back(d);
  }
  const NodeRef flat = api::reshape_node(at, along, loc);
  const NodeRef taken = api::gather_node(from.get(), flat.get(), a, dims, loc);
  return api::finish(api::reshape_node(taken.get(), result, loc));
}

Tensor take_along_axis(const Tensor& x, const Tensor& indices, int axis, SourceLocation loc) {
  ir::Node* const from = checked("take_along_axis", x);
  ir::Node* const at = checked_indices("take_along_axis", indices);
  if (from->rank != at->rank)
    throw UserError(cat("[take_along_axis] needs indices of x's rank: x ", describe(from), ", indices ", describe(at)));
  const int a = api::checked_axis("take_along_axis", axis, from->dims());
  Shape dims;
  for (int i = 0; i < from->rank; ++i) {
    const std::int64_t here = from->dims()[static_cast<std::size_t>(i)], there = at->dims()[static_cast<std::size_t>(i)];
    if (i != a && here != there && here != 1 && there != 1)
      throw UserError(cat("[take_along_axis] x ", describe(from), " and indices ", describe(at),
                          " do not broadcast along axis ", i));
    dims.push_back(i == a || here == 1 ? there : here);
  }
  require_elements("take_along_axis", from, from->dims()[static_cast<std::size_t>(a)], dims.numel());
  return api::finish(api::gather_node(from, at, a, dims, loc));
}

Tensor gather(const Tensor& x, std::span<const Tensor> indices, SourceLocation loc) {
  ir::Node* const from = checked("gather", x);
  if (static_cast<int>(indices.size()) > from->rank)
    throw UserError(cat("[gather] ", indices.size(), " indices for ", describe(from)));
  if (indices.empty()) return x;
  for (const Tensor& i : indices) checked_indices("gather", i);
  if (indices.size() == 1) return take(x, indices[0], 0, loc);
  // Row-major positions among the leading axes; one index out of range puts the position out of range.
  Tensor position, valid;
  std::int64_t count = 1;
  Shape flat{1};
  for (int i = 0; i < from->rank; ++i) {
    const std::int64_t extent = from->dims()[static_cast<std::size_t>(i)];
    if (i >= static_cast<int>(indices.size())) {
      flat.push_back(extent);
      continue;
    }
    count *= extent;
    const Tensor& given = indices[static_cast<std::size_t>(i)];
    Tensor at = given.astype(DType::Int64, loc);
    if (is_signed_int(given.dtype())) at = where(at < Operand(0, loc), at + Operand(extent, loc), at);
    const Tensor ok = (at >= Operand(0, loc)) & Operand(at < Operand(extent, loc), loc);
    position = i == 0 ? at : position * Operand(extent, loc) + Operand(at, loc);
    valid = i == 0 ? ok : valid & Operand(ok, loc);
  }
  flat[0] = count;
  position = where(valid, position, Operand(count, loc));
  return take(x.reshape(flat, loc), position, 0, loc);
}

Tensor gather(const Tensor& x, std::initializer_list<Tensor> indices, SourceLocation loc) {
  return gather(x, std::span(indices.begin(), indices.size()), loc);
}

}  // namespace kiln
