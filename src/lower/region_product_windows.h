// What a main loop is told of an operand that is windows of an array.
#pragma once

#include "lower/region_product_strips.h"
#include "plan/window_view.h"

#include <cstddef>
#include <optional>
#include <vector>

namespace kiln::lower {

/// struct Windows of kernels_templates/product_windows.cuh, which follows the product's extents in the head
/// of a launch.
std::vector<std::byte> head_of_windows(const plan::WindowView& windows,
                                       const std::optional<WindowStrips>& strips);

}  // namespace kiln::lower
