// What several readers of one value make of its cotangent.
#pragma once

#include <kiln/tensor.h>

#include <vector>

namespace kiln::diff {

/// The sum of at least one tensor of one shape. Those that are zeros but for a stretch along one axis, as
/// slices of one tensor leave them, are laid beside each other where they do not overlap: one pass over
/// memory instead of one each.
Tensor sum_of(const std::vector<Tensor>& terms);

}  // namespace kiln::diff
