// Rows in batches: dependent reductions along short rows on a CPU, and what is made of them. A grid item is a
// batch of rows, and each phase goes through all of them before the next begins. So no row waits for its own
// results: while the lanes of one are combined and divided, elements of the others are read. What is made of
// results alone, such as a quotient or a logarithm, is made of a vector of rows.
//
// Invariant: between two phases the values of rows live in scratch memory only, each at its row's number in
// the batch; the elements that a later phase reads again are there too, a pitch apart.
#include "lower/region_lowering.h"
#include "math/expand.h"

namespace kiln::lower {

/// The values of rows, made of a phase's reductions, that elements or later reductions are made of.
std::vector<EntryId> RegionLowering::values_of_rows(int phase) {
  std::vector<bool> read(p_.entries.size());
  for (EntryId id = 0; id < p_.entries.size(); ++id) {
    const Entry& e = p_.entries[id];
    if (e.used_in == 0 || (e.kind != Entry::Kind::Reduce && !varies(id))) continue;
    p_.each_operand(e, [&](EntryId in) { read[in] = true; });
  }
  std::vector<EntryId> list;
  for (EntryId id = 0; id < p_.entries.size(); ++id) {
    const Entry& e = p_.entries[id];
    const bool made = e.kind == Entry::Kind::Op || (e.kind == Entry::Kind::Reduce && s_.form != Form::Rows);
    if (read[id] && made && e.phase == phase && !varies(id)) list.push_back(id);
  }
  return list;
}

/// Elements from a row in scratch memory to the next: each begins with a cache line.
std::int64_t RegionLowering::row_pitch(DType type) const {
  constexpr std::int64_t kLine = 64;
  const std::int64_t line = kLine / size_of(type);
  return ceil_div(product(reduced_groups()), line) * line;
}

/// Where an entry's value at the current element is in scratch memory.
E RegionLowering::scratch_index(EntryId id, DType type) {
  if (s_.form == Form::Slab) return row_position(0);
  if (may_keep_columns() && varies(id)) return kept_index();
  if (s_.batch == 0) return inner_position(type);
  if (!varies(id)) return batch_row_;
  const std::int64_t size = size_of(type);
  return batch_row_ * param(role(kSize, kRowPitch, static_cast<std::uint64_t>(size)), row_pitch(type)) +
         inner_position(type);
}

/// The results of rows that a phase's reductions make, and the values that later phases want of them.
void RegionLowering::finish_rows(Body& into, const Range& rows, int phase) {
  const Stmt made = lane_loop(rows, kept_groups(), [&](Body& body) {
    batch_row_ = lane_;
    store_rows(body, {phase});
    if (phase == 0) return;
    for (const EntryId id : values_of_rows(phase)) {
      const DType type = compute_type(g_[p_.entries[id].node].dtype);
      const E value = build(id);
      scratch_[id] = static_cast<std::int32_t>(scratch_buffer(type, s_.batch * size_of(type)));
      body.push_back(store(static_cast<std::uint32_t>(scratch_[id]), lane_, value));
      p_.entries[id].used_in |= 1u << phase_;
    }
  });
  position_ = {};
  k_.loops[made.target].lanes = static_cast<std::uint16_t>(s_.run_lanes);
  if (!k_.loops[made.target].body.empty()) into.push_back(made);
}

void RegionLowering::build_row_batches() {
  for (Reduction& r : reductions_) {
    const GraphNode& n = g_[p_.entries[r.entry].node];
    const DType type = has_position(n.op) ? DType::Int64 : compute_type(n.dtype);
    r.partial[0] = scratch_buffer(type, s_.batch * size_of(type));
  }
  LoopDecl grid = open_grid();
  const std::vector<int> kept = kept_groups();
  const Range rows = block_range(var(grid.var), size(kBlock, s_.batch), size(kRuns, product(kept)));
  finish_rows(grid.body, rows, 0);
  for (phase_ = 0; phase_ <= phases_; ++phase_) {
    LoopDecl row;
    row.var = new_var();
    row.extent = rows.count.id;
    batch_row_ = var(row.var);
    decompose(rows.first + batch_row_, kept);
    phase_loops(row.body, reduced_groups(), true);
    forget();
    for (const Reduction& r : reductions_)
      if (runs_here(r)) row.body.push_back(store(r.partial[0], batch_row_, total_of(r)));
    if (!row.body.empty()) grid.body.push_back(loop(std::move(row)));
    finish_rows(grid.body, rows, phase_ + 1);
  }
  close_grid(std::move(grid), ceil_div(product(kept), s_.batch));
}

}  // namespace kiln::lower
