// Positions: where slices and updates begin. A position is static, part of the plan, until it varies; then it
// is an argument.
//
// A recorded slice has its start as a number. Most starts are the same every time a program runs (the taps of
// a stencil, the heads of a projection), and knowing them when planning makes better kernels. A decoding loop
// has one that is another at every step. So two evaluations of equal structure, recorded on the same lines,
// are compared: a start in which they differ is an argument from then on, and so are all later evaluations'
// of this structure. What is compared is the start's place in the walk, not its line, so that a stencil
// written as a C++ loop over one line keeps its starts static.
//
// Only starts vary. Extents and steps are the structure itself.
#pragma once

#include "engine/walk.h"

#include <functional>
#include <mutex>
#include <span>

namespace kiln::engine {

/// Decides which of a walk's starts are arguments, gives those their slots, and completes the plan key. The
/// walk's key is that of everything but starts.
void resolve_positions(Walk& walk);

/// Adds a slice or pad some of whose starts are arguments: slices and updates at the scalars that `scalar`
/// gives. Returns the node that has its value.
ir::NodeId add_at_positions(ir::Graph& graph, const ir::GraphNode& node, std::span<const Walk::Start> starts,
                            const std::function<ir::NodeId(const Walk::Start&)>& scalar);

void clear_positions();
std::mutex& positions_mutex();  // for fork

}  // namespace kiln::engine
