#include "api/indices.h"

#include "support/check.h"

namespace kiln::api {

ir::Node* checked_indices(std::string_view op, const Tensor& indices) {
  ir::Node* const node = checked(op, indices);
  if (!is_int(node->dtype)) throw UserError(cat("[", op, "] indices must be integers, not ", describe(node)));
  return node;
}

Slices slices_at(const ir::Node* x, int axis, const ir::Node* indices) {
  Slices s;
  for (int i = 0; i < x->rank; ++i) {
    const std::int64_t extent = x->dims()[static_cast<std::size_t>(i)];
    s.flat.push_back(i == axis ? indices->numel : extent);
    s.along.push_back(i == axis ? indices->numel : 1);
    if (i != axis)
      s.full.push_back(extent);
    else
      for (std::int64_t d : indices->dims()) s.full.push_back(d);
  }
  return s;
}

Joint join_indices(std::string_view op, const ir::Node* x, std::span<const Tensor> indices, SourceLocation loc) {
  if (static_cast<int>(indices.size()) > x->rank)
    throw UserError(cat("[", op, "] ", indices.size(), " indices for ", describe(x)));
  for (const Tensor& i : indices) checked_indices(op, i);
  if (indices.size() == 1) return {indices[0], x->shape()};
  Joint joint;
  Tensor valid;
  std::int64_t count = 1;
  joint.flat.push_back(1);
  for (int i = 0; i < x->rank; ++i) {
    const std::int64_t extent = x->dims()[static_cast<std::size_t>(i)];
    if (i >= static_cast<int>(indices.size())) {
      joint.flat.push_back(extent);
      continue;
    }
    count *= extent;
    const Tensor& given = indices[static_cast<std::size_t>(i)];
    Tensor at = given.astype(DType::Int64, loc);
    if (is_signed_int(given.dtype())) at = where(at < Operand(0, loc), at + Operand(extent, loc), at);
    const Tensor ok = (at >= Operand(0, loc)) & Operand(at < Operand(extent, loc), loc);
    joint.position = i == 0 ? at : joint.position * Operand(extent, loc) + Operand(at, loc);
    valid = i == 0 ? ok : valid & Operand(ok, loc);
  }
  joint.flat[0] = count;
  joint.position = where(valid, joint.position, Operand(count, loc));
  return joint;
}

}  // namespace kiln::api
