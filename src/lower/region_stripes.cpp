// Stripes: reductions over the outer axes of tall columns. A grid item covers a block of columns, longer than
// registers could accumulate, with its accumulators in memory: whole rows of the block are read one after the
// other, which is the order in which they lie in memory. Long columns are cut into chunks of rows; then the
// accumulators are the chunk's partial results, which the finish section combines. Float sums of many rows
// are added up by blocks of rows in accumulators of their own (cut_sums); so are those of a Custom monoid,
// each of whose parts has a buffer until the block's value is known.
//
// Invariant: every pass over a block is a loop on lanes of its own, and between two of them values live in
// memory only.
#include "kernel/monoid.h"
#include "lower/region_lowering.h"
#include "math/expand.h"
#include "support/check.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

namespace kiln::lower {

constexpr std::int64_t kLeastTwice = 16;  // rows of a stripe that are read twice: their totals take long

/// Buffers of a logsumexp whose rows are read twice, in Reduction::parts: the greatest value of a column so
/// far and the sum of the block; then the sum of the blocks before, in Float64, the greatest value that it is
/// relative to, and what a block's values are made relative by (RelativeTo).
enum TwicePart : std::size_t { kGreatest, kSum, kTotal, kGreatestBefore, kShift, kFactor };

/// Rows whose values are added up before their sum is added to the others: of rows that are read twice as
/// many as the second cache keeps of lines of so many bytes.
static std::int64_t rows_of_block(bool twice, std::int64_t line_bytes, const schedule::Target& target) {
  if (!twice) return kAddedInStripes;
  return std::clamp(target.l2_bytes / 2 / line_bytes, kLeastTwice, kAddedInStripes);
}

/// The types of a block's accumulators.
static std::vector<DType> types_of_block(const kernel::Kernel& k, const AccDecl& a, DType type, bool twice,
                                         bool halves) {
  std::vector<DType> types(a.monoid == Monoid::Custom ? k.customs[a.custom].types.size() : 1, type);
  if (twice) types.insert(types.end(), {DType::Float64, type, type});
  if (twice && halves) types.push_back(type);
  return types;
}

// ---- accumulators in memory ----

std::uint32_t RegionLowering::stripe_buffer(DType type) {
  return s_.chunk ? partial_buffer(type, rows_ * chunks_) : scratch_buffer(type, s_.block * size_of(type));
}

/// Where the current column's accumulator is: in scratch memory, or among the chunk's partial results.
E RegionLowering::stripe_index(std::uint32_t buffer) {
  return k_.buffers[buffer].role == BufferDecl::Role::Partial ? chunk_base_ + row_index() : lane_;
}

/// What the accumulator of a column starts from: in the type of the memory that it is in.
E RegionLowering::identity_in(const Reduction& r) {
  AccDecl decl = k_.accs[r.acc];
  decl.type = k_.buffers[r.partial[0]].dtype;
  return identity_of(decl);
}

E RegionLowering::stripe_load(const Reduction& r, bool position) {
  const std::uint32_t buffer = r.partial[position];
  return load(buffer, k_.buffers[buffer].dtype, stripe_index(buffer));
}

/// What a block of rows is combined by: in the type that is computed with.
AccDecl RegionLowering::block_decl(const Reduction& r) {
  return acc_decl(op_of(r), compute_type(g_[p_.entries[r.entry].node].dtype));
}

std::vector<E> RegionLowering::block_parts(const Reduction& r) {
  std::vector<E> parts;
  for (const std::uint32_t buffer : r.parts) parts.push_back(load(buffer, k_.buffers[buffer].dtype, lane_));
  return parts;
}

/// Sets a block's accumulator to its identity.
void RegionLowering::reset_block(Body& body, const Reduction& r) {
  if (r.parts.empty()) return body.push_back(store(r.partial[0], lane_, identity_in(r)));
  const std::vector<E> identity = kernel::identity_parts(k_, block_decl(r));
  for (std::size_t p = 0; p < identity.size(); ++p) body.push_back(store(r.parts[p], lane_, identity[p]));
}

E RegionLowering::stripe_part(const Reduction& r, std::size_t part) {
  return load(r.parts[part], k_.buffers[r.parts[part]].dtype, lane_);
}

/// What is begun for columns before the first of their blocks.
void RegionLowering::begin_twice(Body& body, const Reduction& r) {
  reset_block(body, r);
  if (!reads_twice(r)) return;
  body.push_back(store(r.parts[kTotal], lane_, lane_.lit(DType::Float64, 0)));
  body.push_back(store(r.parts[kGreatestBefore], lane_, stripe_part(r, kGreatest).lit(-HUGE_VAL)));
}

/// Between the two loops over a block: the sum of the blocks before becomes relative to the greatest value
/// now.
void RegionLowering::turn_total(Body& body, const Reduction& r) {
  const E greatest = stripe_part(r, kGreatest);
  const RelativeTo to = relative_to(greatest, takes_halves(r));
  const E before = stripe_part(r, kGreatestBefore), total = stripe_part(r, kTotal);
  const E apart = before - greatest, least = apart.lit(apart.type() == DType::Float64 ? -700 : -87);
  const E power = expand(ir::Op::exp, kernel::select(apart < least, least, apart), {}, {}, apart.type());
  const E smaller = total * kernel::cast(power, DType::Float64);
  body.push_back(store(r.parts[kTotal], lane_, kernel::select(before < greatest, smaller, total)));
  body.push_back(store(r.parts[kShift], lane_, to.shift));
  if (to.factor) body.push_back(store(r.parts[kFactor], lane_, to.factor));
}

/// Behind them: the block's sum is added, and the next block begins.
void RegionLowering::add_to_total(Body& body, const Reduction& r) {
  const E sum = stripe_part(r, kSum);
  body.push_back(store(r.parts[kTotal], lane_, stripe_part(r, kTotal) + kernel::cast(sum, DType::Float64)));
  body.push_back(store(r.parts[kSum], lane_, sum.lit(0)));
  body.push_back(store(r.parts[kGreatestBefore], lane_, stripe_part(r, kGreatest)));
}

/// The value of a block combined with that of the blocks before; of columns whose rows are read twice that of
/// all blocks, once.
E RegionLowering::block_total(const Reduction& r, E before) {
  if (reads_twice(r))
    return kernel::cast(stripe_part(r, kGreatest), DType::Float64) +
           expand(ir::Op::log, stripe_part(r, kTotal), {}, {}, DType::Float64);
  if (r.parts.empty())
    return before + kernel::cast(load(r.partial[0], k_.buffers[r.partial[0]].dtype, lane_), before.type());
  const E value = kernel::show_parts(k_, block_decl(r), block_parts(r));
  return kernel::merge(k_, k_.accs[r.acc], kernel::cast(value, before.type()), before);
}

/// Sets the accumulators of this phase to their identities.
void RegionLowering::stripe_reset(Body& body) {
  for (const Reduction& r : reductions_) {
    if (r.phase != phase_) continue;
    body.push_back(store(r.partial[0], stripe_index(r.partial[0]), identity_in(r)));
    if (r.partial[1])
      body.push_back(
          store(r.partial[1], stripe_index(r.partial[1]), konst(0).lit(k_.buffers[r.partial[1]].dtype, 0)));
  }
  for (const Scan& s : scans_)
    if (runs_now(s)) body.push_back(store(s.total, stripe_index(s.total), identity_of(scan_decl(s))));
}

/// Gives the scans of this phase their values at the current element. Their accumulators are to be stored
/// after everything that reads these values: each of them is made of a load.
std::vector<Stmt> RegionLowering::stripe_scans() {
  std::vector<Stmt> stores;
  for (const Scan& s : scans_) {
    if (!runs_now(s)) continue;
    const Entry& e = p_.entries[s.entry];
    const AccDecl decl = scan_decl(s);
    const E before = load(s.total, decl.type, stripe_index(s.total)),
            after = kernel::merge(k_, decl, build(e.in[0]), before);
    memo_[s.entry] = ir::attributes<ir::Scan>(g_[e.node]).exclusive ? before : after;
    note_origin(memo_[s.entry], e.node);
    stores.push_back(store(s.total, stripe_index(s.total), after));
  }
  return stores;
}

/// Combines the current element of a reduction into its accumulators.
void RegionLowering::stripe_update(Body& body, const Reduction& r) {
  const Entry& e = p_.entries[r.entry];
  const E x = operand(e, 0);
  if (reads_twice(r)) {
    const E greatest = stripe_part(r, kGreatest);
    body.push_back(store(r.parts[kGreatest], lane_, kernel::select(greatest < x, x, greatest)));
    return;
  }
  if (!r.parts.empty()) {  // a part depends on no later one, which is stored before it
    const std::vector<E> next = kernel::merge_parts(k_, block_decl(r), x, block_parts(r));
    for (std::size_t p = next.size(); p-- > 0;) body.push_back(store(r.parts[p], lane_, next[p]));
    return;
  }
  const E acc = stripe_load(r, false);
  if (!has_position(op_of(r))) {
    body.push_back(
        store(r.partial[0], stripe_index(r.partial[0]), kernel::merge(k_, k_.accs[r.acc], x, acc)));
    return;
  }
  const E better = beats(r, x, acc);
  const E at = kernel::cast(to_expr(e.index, r.entry), k_.buffers[r.partial[1]].dtype);
  body.push_back(
      store(r.partial[1], stripe_index(r.partial[1]), kernel::select(better, at, stripe_load(r, true))));
  body.push_back(store(r.partial[0], stripe_index(r.partial[0]), kernel::select(better, x, acc)));
}

// ---- loops ----

/// The second loops of a block of rows, which add up exponentials relative to the greatest value of each
/// column.
void RegionLowering::stripe_relative(Body& into, std::vector<LoopDecl> nest, const Range& columns) {
  into.push_back(lane_loop(columns, column_groups(), [&](Body& body) {
    for (const Reduction& r : reductions_)
      if (reads_twice(r)) turn_total(body, r);
  }));
  reading_ = Reading::Again;
  nest.back().body.push_back(lane_loop(columns, column_groups(), [&](Body& body) {
    for (const Reduction& r : reductions_) {
      if (!reads_twice(r)) continue;
      const E x = operand(p_.entries[r.entry], 0);
      const RelativeTo to{stripe_part(r, kShift), takes_halves(r) ? stripe_part(r, kFactor) : E{}};
      body.push_back(store(r.parts[kSum], lane_, stripe_part(r, kSum) + relative_exp(x, to)));
    }
  }));
  into.push_back(loop(fold(std::move(nest))));
  reading_ = Reading::Once;
  forget();
}

/// What a phase does with an element.
void RegionLowering::stripe_row(Body& body) {
  storing_ = {false, std::uint64_t{1} << phase_};
  const std::vector<Stmt> scanned = stripe_scans();
  for (const Reduction& r : reductions_)
    if (r.phase == phase_) stripe_update(body, r);
  keep_values(body);
  store_full(body);
  body.insert(body.end(), scanned.begin(), scanned.end());
}

/// One phase over a block of columns and the rows of `chunk`, or all rows.
void RegionLowering::stripe_phase(Body& into, const Range& columns, const std::optional<Range>& chunk) {
  const auto over_columns = [&](const Fill& fill) { return lane_loop(columns, column_groups(), fill); };
  into.push_back(over_columns([&](Body& body) { stripe_reset(body); }));
  const std::vector<int> reduced = reduced_groups();
  std::vector<LoopDecl> nest = open_nest(reduced, chunk);
  const bool twice = std::ranges::any_of(reductions_, [&](const Reduction& r) { return reads_twice(r); });
  const std::int64_t line = widest_bytes_ * std::min(s_.block, product(column_groups()));
  const std::size_t blocks = cut_sums(nest, reduced, chunk, 1, rows_of_block(twice, line, target_), true);
  const bool cut = blocks < nest.size();
  const std::vector<LoopDecl> again(nest.begin() + (cut ? static_cast<int>(blocks) + 1 : 0), nest.end());
  if (twice) reading_ = Reading::First;
  const std::vector<Reduction> whole = reductions_;
  for (Reduction& r : reductions_) {
    const AccDecl& a = k_.accs[r.acc];
    if (!cut || !adds_in_blocks(r)) continue;
    const DType type = compute_type(g_[p_.entries[r.entry].node].dtype);
    for (const DType t : types_of_block(k_, a, type, reads_twice(r), takes_halves(r)))
      r.parts.push_back(scratch_buffer(t, s_.block * size_of(t)));
    r.partial[0] = r.parts.front();
    if (a.monoid != Monoid::Custom) r.parts.clear();
  }
  const auto each_part = [&](const std::function<void(const Reduction&, std::uint32_t)>& f) {
    for (std::size_t i = 0; i < reductions_.size(); ++i)
      if (reductions_[i].partial[0] != whole[i].partial[0]) f(reductions_[i], whole[i].partial[0]);
  };
  const Stmt row = over_columns([&](Body& body) { stripe_row(body); });
  if (!k_.loops[row.target].body.empty()) {
    nest.back().body.push_back(row);
    if (cut) {
      into.push_back(over_columns(
          [&](Body& b) { each_part([&](const Reduction& r, std::uint32_t) { begin_twice(b, r); }); }));
      Body& body = nest[blocks].body;
      body.push_back(loop(fold_from(nest, blocks + 1)));
      if (twice) stripe_relative(body, again, columns);
      body.push_back(over_columns([&](Body& b) {
        each_part([&](const Reduction& r, std::uint32_t sum) {
          if (reads_twice(r)) return add_to_total(b, r);
          const E before = load(sum, k_.buffers[sum].dtype, stripe_index(sum));
          b.push_back(store(sum, stripe_index(sum), block_total(r, before)));
          reset_block(b, r);
        });
      }));
    }
    into.push_back(loop(fold(std::move(nest))));
    if (cut && twice)
      into.push_back(over_columns([&](Body& b) {
        each_part([&](const Reduction& r, std::uint32_t value) {
          if (reads_twice(r)) b.push_back(store(value, stripe_index(value), block_total(r, {})));
        });
      }));
  }
  reductions_ = whole;
}

/// Whether a load reads one element for a whole column, by lanes that do not walk its memory one element
/// after the other.
bool RegionLowering::gathered_by_columns(const Entry& e) const {
  if (e.kind != Entry::Kind::Load || e.used_in == 0 || e.inside || e.predicates >= 0) return false;
  std::int64_t step = 1;
  bool columns = false, adjoining = true;
  const std::vector<int> along = column_groups();
  for (std::size_t i = along.size(); i-- > 0;) {
    const Group& g = groups_[static_cast<std::size_t>(along[i])];
    columns = columns || walks(e.index, g);
    adjoining = adjoining && e.index.coef(g.last) == step;
    step *= g.extent;
  }
  return columns && !adjoining &&
         std::ranges::none_of(groups_, [&](const Group& g) { return g.reduced && walks(e.index, g); });
}

/// Columns that share the lanes as one find such elements by divisions: they do so once, and not in each row.
void RegionLowering::keep_columns(Body& into, const Range& columns) {
  std::vector<std::int32_t> kept(p_.entries.size(), -1);
  into.push_back(lane_loop(columns, column_groups(), [&](Body& body) {
    for (EntryId id = 0; id < p_.entries.size(); ++id) {
      if (!gathered_by_columns(p_.entries[id])) continue;
      const DType type = compute_type(g_[p_.entries[id].node].dtype);
      const E value = build(id);
      kept[id] = static_cast<std::int32_t>(scratch_buffer(type, s_.block * size_of(type)));
      body.push_back(store(static_cast<std::uint32_t>(kept[id]), lane_, value));
    }
  }));
  columns_ = std::move(kept);
}

void RegionLowering::build_stripes() {
  LoopDecl grid = open_grid();
  E item = var(grid.var);
  std::optional<Range> chunk;
  if (s_.chunk) {
    declare_chunks();
    const auto [block, c] = divide_with_rest(item, n_chunks_);
    chunk_base_ = c * n_rows_;
    chunk = block_range(c, size(kChunk, s_.chunk), reduced_groups().front());
    item = block;
  }
  const auto entered = enter_columns(item, size(kBlock, s_.block));
  const Range columns = entered.first;
  const std::int64_t groups = entered.second;
  for (Reduction& r : reductions_) {
    AccDecl& decl = k_.accs[r.acc];
    decl = total_decl(r, decl);
    r.partial[0] = stripe_buffer(decl.type);
    // Half as wide as the position that they become, where they fit: each element's step stores one.
    const bool fits = !target_.gpu && product(reduced_groups()) <= std::numeric_limits<std::int32_t>::max();
    if (has_position(op_of(r))) r.partial[1] = stripe_buffer(fits ? DType::Int32 : DType::Int64);
  }
  for (Scan& s : scans_) s.total = scratch_buffer(scan_decl(s).type, s_.block * size_of(scan_decl(s).type));
  auto row_outputs = [&](int phase) {
    if (s_.chunk) return;  // the finish section's part
    grid.body.push_back(lane_loop(columns, column_groups(), [&](Body& body) { store_rows(body, {phase}); }));
  };
  // What is made of a phase's results alone is made once for each column, and not in each row that reads it.
  const auto keep_values = [&] {
    const std::vector<EntryId> kept = values_of_rows(phase_ + 1);
    grid.body.push_back(lane_loop(columns, column_groups(), [&](Body& body) {
      for (const EntryId id : kept) {
        const DType type = compute_type(g_[p_.entries[id].node].dtype);
        const E value = build(id);
        scratch_[id] = static_cast<std::int32_t>(scratch_buffer(type, s_.block * size_of(type)));
        body.push_back(store(static_cast<std::uint32_t>(scratch_[id]), lane_, value));
      }
    }));
    for (const EntryId id : kept) p_.entries[id].used_in |= 1u << phase_;
  };
  if (!target_.gpu && s_.kept_from >= 0) keep_columns(grid.body, columns);
  row_outputs(0);
  for (phase_ = 0; phase_ <= phases_; ++phase_) {
    stripe_phase(grid.body, columns, chunk);
    row_outputs(phase_ + 1);
    if (!target_.gpu && phase_ < phases_ && !s_.chunk) keep_values();
  }
  std::erase_if(grid.body, [&](const Stmt& s) { return k_.loops[s.target].body.empty(); });
  close_grid(std::move(grid), groups * chunks_);
  if (s_.chunk) build_finish(groups, column_groups(), size(kBlock, s_.block), std::vector<AccDecl>(k_.accs));
}

}  // namespace kiln::lower
