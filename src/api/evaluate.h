// Evaluation seen from the API: makes nodes into leaves.
#pragma once

#include "ir/node.h"

#include <span>

namespace kiln::api {

/// Computes the given nodes (and what they need). On return each is a leaf. Errors carry the recording line.
void evaluate(std::span<ir::Node* const> roots);

}  // namespace kiln::api
