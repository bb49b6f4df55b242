// KILN_CHECK=nan,diff,bounds: looks at what a plan computed.
#pragma once

#include "ir/graph.h"
#include "record/node.h"

#include <span>

namespace kiln::engine {

/// UserError when a root has a NaN although no float argument has one. It names the operation that made the
/// first NaN, as far as the interpreter finds it, and the line that recorded it.
void check_nans(const ir::Graph& graph, std::span<std::byte* const> args,
                std::span<const std::uint64_t> slots, std::span<const std::byte* const> computed);

/// `graph` is the recorded one, `computed` its roots' row-major values. nan: a root that has a NaN although
/// no float argument has one is an error; diff: values that differ from the oracle's beyond the tolerance of
/// their dtype are; bounds: indices out of range are. Throws InternalError (diff) or UserError (nan, bounds)
/// naming the op, the position or index, and the line that recorded it.
void check_values(const ir::Graph& graph, std::span<std::byte* const> args,
                  std::span<const std::uint64_t> slots, std::span<const std::byte* const> computed);

}  // namespace kiln::engine
