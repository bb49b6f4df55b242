// Columns that a GPU's block copies to shared memory because reductions along them depend on each other, or
// whole results on these: they are read once from memory. A held load's elements stand row after row of the
// reduced axes, with the block's columns adjacent.
#include "lower/region_lowering.h"

#include <algorithm>
#include <utility>

namespace kiln::lower {

/// Whether an element is a load of its own for each point of a column, and not one that other items read,
/// too.
bool RegionLowering::is_held(const Entry& e) const {
  return e.kind == Entry::Kind::Load && !e.inside && e.predicates < 0 && walks(e.index, groups_.back()) &&
         !passes_often(e) &&
         std::ranges::any_of(groups_, [&](const Group& g) { return g.reduced && walks(e.index, g); });
}

/// Copies the columns of a block to shared memory.
void RegionLowering::hold_columns(Body& into, const Range& columns) {
  std::int64_t bytes = 0;
  const std::vector<int> rows = rows_of_columns();
  const auto is_held = [&](const Entry& e) {
    return this->is_held(e) && std::ranges::any_of(rows, [&](int g) {
             return walks(e.index, groups_[static_cast<std::size_t>(g)]);
           });
  };
  for (const Entry& e : p_.entries)
    if (is_held(e)) bytes += size_of(g_[e.node].dtype);
  if (bytes == 0) return;
  const std::int64_t elements = s_.run / bytes;
  std::vector<std::int32_t> staged(p_.entries.size(), -1);
  into.push_back(lane_loop(columns, column_groups(), [&](Body& body) {
    std::vector<LoopDecl> nest =
        s_.together && rows.size() > 1 ? open_together(rows, {}, false, 0) : open_nest(rows, {});
    nest.front().rows = static_cast<std::uint16_t>(s_.rows);
    for (EntryId id = 0; id < p_.entries.size(); ++id) {
      if (!is_held(p_.entries[id])) continue;
      const DType type = g_[p_.entries[id].node].dtype;
      const std::uint32_t tile = scratch_buffer(type, ceil_div(elements * size_of(type), 64) * 64);
      k_.buffers[tile].shared = static_cast<std::uint32_t>(elements);
      k_.buffers[tile].vector = s_.lanes > 1;
      staged[id] = static_cast<std::int32_t>(tile);
      nest.back().body.push_back(store(tile, column_index(type), build(id)));
    }
    inner_ = {};
    if (std::exchange(placed_together_, false)) position_ = {};
    body.push_back(loop(fold(std::move(nest))));
  }));
  staged_ = std::move(staged);
}

/// Where the element at hand is in a tile of hold_columns().
E RegionLowering::column_index(DType type) {
  return inner_position(type) * (s_.fold > 0 ? size(kBlock, s_.block) : konst(s_.block)) + lane_;
}

}  // namespace kiln::lower
