// What reading and writing at index tensors share.
#pragma once

#include "api/record.h"

#include <span>

namespace kiln::api {

/// The node of integer indices; UserError otherwise.
ir::Node* checked_indices(std::string_view op, const Tensor& indices);

/// Shapes of x's slices along an axis at indices: with these as one axis, the indices themselves in x's rank,
/// and with all axes of the indices.
struct Slices {
  Shape flat, along, full;
};
Slices slices_at(const ir::Node* x, int axis, const ir::Node* indices);

/// Several index tensors for x's leading axes as positions along one axis that takes their place: one index
/// out of range puts the position out of range.
struct Joint {
  Tensor position;
  Shape flat;   // x's shape with the leading axes as one
  Shape whole;  // x's shape where axes have been joined; else empty
};
Joint join_indices(std::string_view op, const ir::Node* x, std::span<const Tensor> indices);

}  // namespace kiln::api
