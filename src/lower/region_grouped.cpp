// Grouped columns: a GPU's reductions along axes between which kept ones lie, of which the last is short, as
// of (n, 8, 5) over axes 0 and 2. A block has adjacent columns of the axes behind the outer reduced ones,
// kept and reduced alike, and reads them as it does any columns: by vectors, its parts sharing the rows. What
// the columns come to waits in shared memory, where a thread combines those of each result and leaves it for
// every column that belongs to it.
//
// Invariant: a block's columns are whole groups, and between two of its loops values live in shared memory.
#include "lower/accesses.h"
#include "lower/region_lowering.h"
#include "math/expand.h"

#include <algorithm>
#include <utility>

namespace kiln::lower {

constexpr std::int64_t kWord = 4;  // bytes, of which narrower accesses use a part

/// Whether groups from `first` on are kept ones, and then reduced ones.
bool RegionLowering::columns_in_groups(int first) const {
  const std::span<const Group> inside = std::span(groups_).subspan(static_cast<std::size_t>(first));
  return !inside.empty() && !inside.front().reduced && inside.back().reduced &&
         std::ranges::is_partitioned(inside, [](const Group& g) { return !g.reduced; }) &&
         std::ranges::none_of(groups_, [](const Group& g) { return g.backwards; });
}

/// The reduced groups that are rows of what lies on lanes.
std::vector<int> RegionLowering::rows_of_columns() const {
  std::vector<int> rows = reduced_groups();
  if (target_.gpu && s_.fold > 0) std::erase_if(rows, [&](int g) { return g >= s_.lane_axis; });
  return rows;
}

/// Adjacent elements of the groups inside a folded one that accesses of all that lies along them take at
/// once: 16 bytes, or a word of the narrowest; else 1.
int RegionLowering::grouped_vector_elements(int folded) const {
  std::int64_t columns = 1;
  for (int g = folded + 1; g <= last_group(); ++g) columns *= groups_[static_cast<std::size_t>(g)].extent;
  const auto each = [&](const std::function<bool(NodeId, const Index&, std::int64_t)>& f) {
    for (const Entry& e : p_.entries) {
      if (e.kind != Entry::Kind::Load || !walks(e.index, groups_[static_cast<std::size_t>(folded)]) ||
          !walks(e.index, groups_.back()))
        continue;
      const GraphNode& n = g_[e.node];
      if (!f(e.node, e.index, n.op == Op::leaf ? g_.args[static_cast<std::size_t>(n.arg)].alignment : 0))
        return false;
    }
    return std::ranges::all_of(p_.outputs, [&](const Pulled::Output& o) {
      const std::int64_t base = o.placed ? g_.args[regions_.placements.at(o.node).arg].alignment : 0;
      return o.row || f(o.node, o.at, base);
    });
  };
  AccessWidths widths;
  each([&](NodeId node, const Index&, std::int64_t) {
    widths.write(size_of(g_[node].dtype));
    return true;
  });
  for (const std::int64_t elements : {widths.elements(), kWord / widths.narrowest()}) {
    const auto whole = [&](NodeId node, const Index& index, std::int64_t base) {
      const std::int64_t bytes = std::min(kAccessBytes, elements * size_of(g_[node].dtype));
      if (base % bytes != 0 || index.c % elements != 0) return false;
      return std::ranges::all_of(groups_, [&](const Group& g) {
        return &g - groups_.data() > folded || index.coef(g.last) % elements == 0;
      });
    };
    if (elements > 1 && columns % elements == 0 && each(whole)) return static_cast<int>(elements);
  }
  return 1;
}

/// A loop over the results of a block's columns, a thread's each.
Stmt RegionLowering::over_points(const Range& columns, const Fill& fill) {
  const E together = size(kFoldRun, product(folded_groups(false, true)));
  const Range points{divide(columns.first, together), divide(columns.count, together)};
  at_points_ = true;
  const Stmt each = lane_loop(points, folded_groups(true, false), fill);
  at_points_ = false;
  k_.loops[each.target].lanes = 1;
  k_.loops[each.target].steps = 0;
  return each;
}

/// What this phase's columns of each result come to, for every one of these columns.
void RegionLowering::combine_group(Body& into, const Range& columns) {
  const E together = size(kFoldRun, product(folded_groups(false, true)));
  into.push_back(over_points(columns, [&](Body& body) {
    const auto each_column = [&](LoopDecl& l) {
      l.var = new_var();
      l.extent = together.id;
      return lane_ * together + var(l.var);
    };
    LoopDecl group, spread;
    const E at = each_column(group), to = each_column(spread);
    for (const Reduction& r : reductions_) {
      if (!runs_here(r)) continue;
      const DType type = k_.buffers[r.of_lane].dtype;
      const std::uint32_t acc = new_acc(acc_decl(op_of(r), type));
      group.accs.push_back(acc);
      group.body.push_back(combine(acc, load(r.of_lane, type, at)));
      const E total = kernel::cast(acc_value(acc, k_.accs[acc].type), type);
      if (r.spread != 0) spread.body.push_back(store(r.spread, to, total));
    }
    const std::vector<std::uint32_t> accs = group.accs;
    body.push_back(loop(std::move(group)));
    if (!spread.body.empty()) body.push_back(loop(std::move(spread)));
    auto acc = accs.begin();
    for (const Reduction& r : reductions_)
      if (runs_here(r)) {
        const DType type = k_.buffers[r.of_lane].dtype;
        if (r.of_point != 0)
          body.push_back(store(r.of_point, lane_, kernel::cast(acc_value(*acc, k_.accs[*acc].type), type)));
        ++acc;
      }
  }));
}

/// Shared memory for what columns come to, for their results, and for the latter beside every column.
void RegionLowering::make_group_buffers() {
  const std::int64_t most = std::int64_t{s_.threads.team} / s_.rows * s_.lanes;
  const bool rows = std::ranges::any_of(p_.outputs, [](const Pulled::Output& o) { return o.row; });
  const bool later = phases_ > 1 || std::ranges::any_of(p_.outputs, [&](const Pulled::Output& o) {
                       return !o.row && p_.entries[o.entry].phase > 0;
                     });
  for (Reduction& r : reductions_) {
    const DType type = compute_type(g_[p_.entries[r.entry].node].dtype);
    const auto shared = [&](std::int64_t elements) {
      const std::uint32_t b = scratch_buffer(type, ceil_div(elements * size_of(type), 64) * 64);
      k_.buffers[b].shared = static_cast<std::uint32_t>(elements);
      k_.buffers[b].vector = s_.lanes > 1;
      return b;
    };
    r.of_lane = shared(most);
    r.of_point = rows ? shared(most) : 0;
    r.spread = later ? shared(most) : 0;
  }
}

void RegionLowering::build_grouped() {
  LoopDecl grid = open_grid();
  const auto entered = enter_columns(var(grid.var), size(kBlock, s_.block));
  const Range columns = entered.first;
  make_group_buffers();
  if (ceil_div(product(rows_of_columns()), s_.rows) <= kAddedInOrder) bounded_.assign(k_.accs.size(), true);
  if (s_.run > 0) hold_columns(grid.body, columns);
  const auto store_points = [&](int phase) {
    const bool any = std::ranges::any_of(
        p_.outputs, [&](const Pulled::Output& o) { return o.row && stored_in(o) == phase; });
    if (any) grid.body.push_back(over_points(columns, [&](Body& into) { store_rows(into, {phase}); }));
  };
  store_points(0);
  for (phase_ = 0; phase_ <= phases_; ++phase_) {
    const bool reduces = std::ranges::any_of(reductions_, [&](const Reduction& r) { return runs_here(r); });
    const Stmt phase = lane_loop(columns, column_groups(), [&](Body& body) {
      phase_loops(body, rows_of_columns(), false);
      forget();
      for (const Reduction& r : reductions_)
        if (runs_here(r)) body.push_back(store(r.of_lane, lane_, total_of(r)));
    });
    if (!k_.loops[phase.target].body.empty()) grid.body.push_back(phase);
    if (reduces) combine_group(grid.body, columns);
    store_points(phase_ + 1);
  }
  close_grid(std::move(grid), entered.second);
}

}  // namespace kiln::lower
