#include "api/indices.h"

#include "ir/joined_index.h"
#include "support/check.h"

#include <kiln/config.h>

#include <algorithm>

namespace kiln::api {
namespace {

static_assert(ir::kBadIndexAxes >= kMaxRank);

/// Positions that say of each index that it is out of range of the axis.
Tensor bad_positions(const Tensor& indices, int axis) {
  const Operand far(ir::kFarIndex);
  Tensor near = indices;
  if (size_of(near.dtype()) == 8) near = minimum(near, far);
  near = near.astype(DType::Int64);
  if (indices.dtype() == DType::Int64) near = maximum(near, Operand(-ir::kFarIndex));
  return near * Operand(ir::kBadIndexAxes) + Operand(ir::bad_index_position({0, axis}));
}

}  // namespace

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

Joint join_indices(std::string_view op, const ir::Node* x, std::span<const Tensor> indices) {
  if (static_cast<int>(indices.size()) > x->rank)
    throw UserError(cat("[", op, "] ", indices.size(), " indices for ", describe(x)));
  for (const Tensor& i : indices) checked_indices(op, i);
  if (indices.size() == 1) return {indices[0], x->shape(), {}};
  Joint joint;
  joint.whole = x->shape();
  Tensor valid;
  std::vector<Tensor> fits, bad;  // an axis, where the check wants to know
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
    Tensor at = given.astype(DType::Int64);
    if (is_signed_int(given.dtype())) at = where(at < Operand(0), at + Operand(extent), at);
    const Tensor ok = (at >= Operand(0)) & Operand(at < Operand(extent));
    joint.position = i == 0 ? at : joint.position * Operand(extent) + Operand(at);
    valid = i == 0 ? ok : valid & Operand(ok);
    if (!config().check_bounds) continue;
    fits.push_back(ok);
    bad.push_back(bad_positions(given, i));
  }
  joint.flat[0] = count;
  if (bad.empty()) joint.position = where(valid, joint.position, Operand(count));
  for (std::size_t i = bad.size(); i-- > 0;) joint.position = where(fits[i], joint.position, bad[i]);
  return joint;
}

}  // namespace kiln::api
