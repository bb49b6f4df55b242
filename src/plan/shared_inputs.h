// shared_inputs: products that multiply the same rows by different operands, as the queries, keys and values
// of an attention, or gate and up of a SwiGLU. A main loop of a GPU reads the rows once for both of a pair
// whose results meet at the same points; others keep columns and maps of their own, and share a launch.
#pragma once

#include "plan/region.h"
#include "schedule/target.h"

#include <functional>

namespace kiln::plan {

/// Whether a main loop makes both products side by side: of one first operand, and of second ones that have
/// equal extents and lie in memory alike.
bool are_side_by_side(const Graph& graph, const schedule::Target& target, NodeId product, NodeId other);

/// The product of a region that is nothing else, or none.
NodeId lone_product(const Graph& graph, const Region& region);

/// Whether a main loop with tiles of 128 rows and `tile_n` columns does a product of many rows about as fast
/// as the library: tiles fill the device, and the last turn of them leaves few multiprocessors idle.
/// `columns`: those of all products of these rows that share the launch.
bool fills_turns(const Graph& graph, const schedule::Target& target, NodeId product, std::int64_t columns,
                 std::int64_t tile_n);

/// Whether that takes less time than the library's products and a kernel that reads both.
bool pays_side_by_side(const Graph& graph, const schedule::Target& target, NodeId product);

/// Products that share their first operand, and are there at one time, become one region of several parts,
/// where `can` says that one main loop does both of two: those of few rows, and those of which one has maps
/// that read its columns in pairs (partner_columns.h), so that a main loop does it in any case. Planned after
/// all merges: regions change, the graph does not.
void share_launches(const Graph& graph, const schedule::Target& target, Regions& regions,
                    const std::function<bool(const Region&, const Region&)>& can);

}  // namespace kiln::plan
