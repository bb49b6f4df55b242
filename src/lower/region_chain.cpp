// Long scans in chunks (form Chain): the body computes the total of each chunk, the link section finds the
// total of all chunks before, and the second section scans each chunk: on a CPU while it is in the second
// cache, on a GPU while a warp has it in registers. There a grid item is a warp's, and the warps of a block
// have chunks that follow each other. Down columns the lanes have columns, and blocks that run together lie
// side by side.
//
// Invariant: the order in which values are combined depends on sizes and the width of the lanes only, never
// on threads.
#include "kernel/monoid.h"
#include "lower/region_lowering.h"

#include <utility>

namespace kiln::lower {

constexpr int kTotalRegisters = 4;  // side by side: a total waits for its additions

void RegionLowering::build_chain() {
  declare_chunks();
  const auto lane_group = static_cast<std::size_t>(s_.lane_axis);
  const bool columns = !groups_[lane_group].reduced;
  const std::int64_t width = columns ? s_.block : 1,
                     tiles = columns ? rows_ / groups_[lane_group].extent * blocks_of(s_.lane_axis) : rows_;
  for (Scan& s : scans_) {
    const DType type = scan_decl(s).type;
    s.total = partial_buffer(type, tiles * chunks_ * width);
    s.prefix = partial_buffer(type, tiles * chunks_ * width);
  }
  const E length = size(kChunk, s_.chunk);
  const int outermost = reduced_groups().front();
  const auto section = [&](std::vector<Stmt>& into,
                           const std::function<void(Body&, E, E, const Range&)>& fill) {
    LoopDecl grid = open_grid();
    const E item = var(grid.var);
    if (columns) {
      const E warps = konst(s_.threads.block / s_.threads.team), turn = kernel::index_div(item, warps);
      const auto [turns, tile] = divide_with_rest(turn, size(kGroups, tiles));
      const E chunk = turns * warps + (item - turn * warps);
      grid.body.push_back(
          lane_loop(enter_columns(tile, size(kBlock, width)).first, column_groups(),
                    [&](Body& body) { fill(body, item, chunk, block_range(chunk, length, outermost)); }));
    } else {
      const auto [row, chunk] = divide_with_rest(item, n_chunks_);
      decompose(row, kept_groups());
      fill(grid.body, item, chunk,
           s_.early ? early_chunk(row, chunk) : block_range(chunk, length, outermost));
    }
    close_grid(std::move(grid), tiles * chunks_);
    if (&into != &k_.body) into.push_back(std::exchange(k_.body, {}).front());
  };
  const auto place = [&](E item) { return columns ? item * konst(width) + lane_ : item; };
  // The body is made last: it is what close_grid appends to.
  section(k_.link, [&](Body& body, E item, E chunk, const Range&) { link_chunks(body, item, chunk); });
  section(k_.second, [&](Body& body, E item, E, const Range& range) {
    item_ = place(item);
    phase_loops(body, reduced_groups(), !columns, range);
    item_ = {};
  });
  section(k_.body,
          [&](Body& body, E item, E, const Range& range) { chain_totals(body, place(item), range); });
}

/// The elements of a chunk whose vectors begin where those of memory do: all but the row's first begin early
/// by as many elements as the row's first vector does. Chunks behind the row's end have none, and begin where
/// the last one does.
Range RegionLowering::early_chunk(E row, E chunk) {
  const E whole = whole_of(reduced_groups()), length = konst(s_.chunk), early = begins_early(row),
          last = kernel::index_div(whole - konst(1) + early, length) * length - early,
          begin = chunk * length - early, at = kernel::min(begin, last), first = kernel::max(at, konst(0));
  early_ = first - at;
  return {first, kernel::min(whole - begin, length) - early_};
}

/// Reduces a chunk of the scanned values.
void RegionLowering::chain_totals(Body& body, E place, const Range& range) {
  forget();
  std::vector<LoopDecl> nest = open_nest(reduced_groups(), range);
  if (groups_[static_cast<std::size_t>(s_.lane_axis)].reduced) put_on_lanes(nest.back());
  if (s_.written_out > 0) nest.back().steps = static_cast<std::uint16_t>(s_.written_out);
  nest.back().again |= s_.written_out > 0;
  if (!target_.gpu) nest.back().lanes = static_cast<std::uint16_t>(s_.lanes * kTotalRegisters);
  body_ = &nest.back().body;
  std::vector<std::uint32_t> accs;
  for (const Scan& s : scans_) {
    const auto acc = static_cast<std::uint32_t>(k_.accs.size());
    k_.accs.push_back(scan_decl(s));
    nest.front().accs.push_back(acc);
    Stmt update{Stmt::Kind::Update, acc};
    update.value = build(p_.entries[s.entry].in[0]).id;
    nest.back().body.push_back(update);
    accs.push_back(acc);
  }
  if (target_.gpu) bounded_.assign(k_.accs.size(), true);  // a thread has few elements of a chunk
  body.push_back(loop(fold(std::move(nest))));
  for (std::size_t i = 0; i < scans_.size(); ++i)
    body.push_back(store(scans_[i].total, place, acc_value(accs[i], k_.accs[accs[i]].type)));
}

/// From an element to the one at the same place of the chunk that this thread will most likely take next. The
/// second section, which waits for its stores, has time to fetch it.
E RegionLowering::bytes_to_next_chunk(const Entry& e) {
  const DType type = g_[e.node].dtype;
  const bool behind = e.index.coef(groups_[static_cast<std::size_t>(reduced_groups().front())].last) < 0;
  std::int64_t inner = 1;
  for (const int g : reduced_groups()) inner *= groups_[static_cast<std::size_t>(g)].extent;
  inner /= groups_[static_cast<std::size_t>(reduced_groups().front())].extent;
  const auto bytes = static_cast<std::uint64_t>(size_of(type));
  const std::int64_t distance = target_.threads * s_.chunk * inner * size_of(type);
  return behind ? param(role(kSize, kBehind, bytes), -distance) : param(role(kSize, kAhead, bytes), distance);
}

/// What comes before a chunk: nothing before a row's first, else what comes before the last one and its
/// total.
void RegionLowering::link_chunks(Body& body, E item, E chunk) {
  if (target_.gpu) return add_totals(body, item, chunk);
  const E first = chunk == konst(0), before = item - konst(1);
  for (const Scan& s : scans_) {
    const AccDecl acc = scan_decl(s);
    const E total = load(s.total, acc.type, before, ~first),
            prefix = load(s.prefix, acc.type, before, ~first);
    body.push_back(store(s.prefix, item,
                         kernel::select(first, identity_of(acc), kernel::merge(k_, acc, total, prefix))));
  }
}

/// What comes before a chunk, without waiting for the one before to know the same: the totals of all before.
void RegionLowering::add_totals(Body& body, E item, E chunk) {
  const bool columns = !groups_[static_cast<std::size_t>(s_.lane_axis)].reduced;
  LoopDecl l;
  l.kind = columns ? LoopKind::Serial : LoopKind::Vector;
  l.var = new_var();
  l.extent = chunk.id;
  E other = item - chunk + var(l.var);
  const auto place = [&](E i) { return columns ? i * konst(s_.block) + lane_ : i; };
  if (columns) {  // warps of a block have chunks that follow each other, blocks the columns side by side
    const E warps = konst(s_.threads.block / s_.threads.team);
    const E turn = kernel::index_div(var(l.var), warps), turns = kernel::index_div(chunk, warps);
    const E n_tiles = unset_param(role(kSize, kGroups));
    other = item - (chunk - var(l.var)) - (turns - turn) * (n_tiles - konst(1)) * warps;
  }
  const std::uint32_t first = static_cast<std::uint32_t>(k_.accs.size());
  for (const Scan& s : scans_) {
    Stmt update{Stmt::Kind::Update, static_cast<std::uint32_t>(k_.accs.size())};
    update.value = load(s.total, scan_decl(s).type, place(other)).id;
    l.accs.push_back(update.target);
    l.body.push_back(update);
    k_.accs.push_back(scan_decl(s));
  }
  body.push_back(loop(std::move(l)));
  for (std::size_t i = 0; i < scans_.size(); ++i)
    body.push_back(store(scans_[i].prefix, place(item),
                         acc_value(first + static_cast<std::uint32_t>(i), scan_decl(scans_[i]).type)));
}

}  // namespace kiln::lower
