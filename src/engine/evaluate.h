// Evaluation seen from the API: makes nodes into leaves.
#pragma once

#include "record/node.h"

#include <kiln/error.h>

#include <span>

namespace kiln::engine {

/// Computes the given nodes (and what they need). On return each is a leaf. Errors carry the recording line.
void evaluate(std::span<ir::Node* const> roots);

/// The same; nothing else joins them.
void evaluate_alone(std::span<ir::Node* const> roots);

/// The same for a part of a trace that was cut into equal parts: scalars that are equal by chance stay apart,
/// so that the parts' plans are equal whatever the numbers.
void evaluate_part(std::span<ir::Node* const> roots);

}  // namespace kiln::engine
