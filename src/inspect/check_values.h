// KILN_CHECK=nan,diff,bounds: looks at what a plan computed.
#pragma once

#include "ir/graph.h"
#include "record/node.h"

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace kiln::engine {

/// UserError when a root has a NaN although no float argument has one. It names the operation that made the
/// first NaN, as far as the interpreter finds it, the first that made an infinity of finite values before it,
/// and their lines.
void check_nans(const ir::Graph& graph, std::span<std::byte* const> args,
                std::span<const std::uint64_t> slots, std::span<const std::byte* const> computed);

/// The values of a graph's roots by a plan of their own, row-major in host memory, of the same arguments.
using Recompute = std::function<std::vector<std::vector<std::byte>>(const ir::Graph&)>;

/// `graph` is the recorded one, `computed` its roots' row-major values. nan: a root that has a NaN although
/// no float argument has one is an error; diff: values that differ from the oracle's beyond the tolerance of
/// their dtype are; bounds: indices out of range are. Throws InternalError (diff) or UserError (nan, bounds)
/// naming the op, the position or index, and the line that recorded it. diff computes every operation again,
/// each value stored, and names the first that differs; if none does, one value at a time is stored beside
/// the result of the kernel that fuses them.
void check_values(const ir::Graph& graph, std::span<std::byte* const> args,
                  std::span<const std::uint64_t> slots, std::span<const std::byte* const> computed,
                  const Recompute& recompute);

}  // namespace kiln::engine
