// Nests over pairs on a GPU: of each i what is reduced over j of values made of r[i, j], where r is reduced
// over k of a function of x[i, k] and y[j, k]: the nearest of several points, the loss of a row of scores. A
// hand-written main loop (kernels_templates/nest_pairs.cuh) brings tiles of x and y to shared memory and
// keeps r in registers. What is lowered are its hooks: x and y, and what is made of them alone; r; what is
// reduced; what is made of a row's results.
//
// Invariant: a hook's values are made of its coordinates and of what comes with its call alone.
#include "lower/region_pairs.h"

#include "math/expand.h"
#include "support/check.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace kiln::lower {
namespace {

/// As struct NestShape in kernels_templates/nest_head.cuh.
struct NestHead {
  std::int32_t rows, columns, depth, parts;
};

/// As NestState in kernels_templates/nest_pairs.cuh.
enum class Kept : std::int8_t { Max, Min, ArgMax, ArgMin, LogSum, Sum, None };

Kept kept_of(ir::Fold fold) {
  switch (fold) {
    case ir::Fold::Max: return Kept::Max;
    case ir::Fold::Min: return Kept::Min;
    case ir::Fold::ArgMax: return Kept::ArgMax;
    case ir::Fold::ArgMin: return Kept::ArgMin;
    case ir::Fold::LogAddExp: return Kept::LogSum;
    case ir::Fold::Sum: return Kept::Sum;
    case ir::Fold::Prod:
    case ir::Fold::None: break;
  }
  return Kept::None;
}

constexpr int kThreads = 128, kEachRow = 8;  // of a block; rows of a thread
constexpr std::int64_t kManyRows = 1024;     // of which blocks have twice as many
constexpr int kSteps = 8, kFewSteps = 4;     // along k at a time; where there are no more of these
constexpr std::size_t kMostReductions = 3;
constexpr std::int64_t kLeastColumns = 12, kLeastSteps = 3;
constexpr std::int64_t kMostParts = 256;  // of the columns
constexpr std::int64_t kAddedAsOne = 64;  // steps along k: sums of more are made of parts
constexpr int kStoredAsOne = 4;           // adjacent columns of a thread
constexpr int kMostResident = 32;         // blocks on a multiprocessor

// Of few steps along k a thread has rows alone (kernels_templates/nest_short.cuh).
constexpr int kThreadsAlone = 64, kRowsAlone = 4, kColumnsAlone = 8, kStaged = 64, kBlocksAlone = 8;

/// Threads along columns, and columns of each.
struct Across {
  int threads, each;
  double time;  // of a column, in those of the first
};
constexpr Across kAcross[] = {{16, 8, 1.0}, {16, 7, 1.03}, {8, 8, 1.06}, {8, 5, 1.12},
                              {4, 9, 1.12}, {8, 4, 1.2},   {4, 4, 1.3}};
/// The same of sums that are made of parts, of which a thread has twice as many.
constexpr Across kAcrossParts[] = {{16, 4, 1.0}, {8, 5, 1.05}, {8, 4, 1.1}, {4, 4, 1.2}};
/// The same of doubles, which take two registers each.
constexpr Across kAcrossDoubles[] = {{16, 4, 1.0}, {8, 4, 1.1}, {4, 4, 1.2}},
                 kAcrossDoubleParts[] = {{16, 2, 1.0}, {8, 2, 1.1}};

/// The same of results that are stored one by one: a warp has a row's, side by side.
constexpr Across kAcrossStored{32, 4, 1.0};

/// The tile that so many columns fill best.
const Across& across(std::int64_t columns, bool cut, bool doubles) {
  const auto time = [&](const Across& a) {
    const std::int64_t tile = std::int64_t{a.threads} * a.each;
    return static_cast<double>(ceil_div(columns, tile) * tile) * a.time;
  };
  const std::span<const Across> all = doubles && cut ? std::span<const Across>(kAcrossDoubleParts)
                                      : doubles      ? kAcrossDoubles
                                      : cut          ? kAcrossParts
                                                     : std::span<const Across>(kAcross);
  return *std::ranges::min_element(all, {}, time);
}

bool has_rows_alone(const NestOfPairs& n) { return n.threads == 1; }
int rows_of_thread(const NestOfPairs& n) { return has_rows_alone(n) ? kRowsAlone : kEachRow; }

/// Threads of a block: large tiles read each element the fewest times. Results that are stored had better be
/// many blocks', of which some store while others combine.
int block_of(const NestOfPairs& n, std::int64_t rows) {
  if (has_rows_alone(n)) return kThreadsAlone;
  const bool widest = n.threads == kAcross[0].threads && n.each == kAcross[0].each;
  return widest && !n.kept.empty() && rows >= kManyRows ? 2 * kThreads : kThreads;
}
std::int64_t tile_rows(const NestOfPairs& n, std::int64_t rows) {
  return std::int64_t{rows_of_thread(n)} * block_of(n, rows) / n.threads;
}
/// Columns that are in shared memory at a time.
std::int64_t tile_columns(const NestOfPairs& n) {
  return has_rows_alone(n) ? kStaged : std::int64_t{n.threads} * n.each;
}
/// Blocks on a multiprocessor, as many as registers allow: several reductions take more, and doubles.
int resident(const NestOfPairs& n, std::int64_t rows, bool doubles) {
  constexpr int kFew = 4, kOfDoubles = 3;  // columns of a thread
  if (has_rows_alone(n)) return kBlocksAlone;
  if (doubles) return kOfDoubles * kThreads / block_of(n, rows);
  const bool few = n.each <= kFew, several = n.kept.size() > 1;
  const int blocks = n.kept.size() > 2 && !n.cut  ? 2
                     : several || (n.cut && !few) ? 3
                     : few && n.kept.empty()      ? 5
                                                  : 4;
  return blocks * kThreads / block_of(n, rows);
}

/// In how many parts columns are best dealt to blocks, so that all multiprocessors have work to the end.
std::int64_t parts_of(std::int64_t row_blocks, std::int64_t tiles, std::int64_t at_once) {
  constexpr double kBegun = 0.4;  // tiles in whose time a part's results are kept and combined
  std::int64_t best = 1;
  double least = 0;
  for (std::int64_t parts = 1; parts <= std::min(tiles, kMostParts); ++parts) {
    const auto turns = static_cast<double>(ceil_div(row_blocks * parts, at_once));
    const double time = turns * (static_cast<double>(ceil_div(tiles, parts)) + (parts > 1 ? kBegun : 0));
    if (parts > 1 && time >= least) continue;
    best = parts;
    least = time;
  }
  return best;
}

std::int32_t bits_of(std::uint64_t identity) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(identity));
}

}  // namespace

DType PairsLowering::computed_type(EntryId id) const { return compute_type(r_.g_[entry(id).node].dtype); }

/// The groups that a value changes along, by a bit each; nothing where that is not known.
std::optional<unsigned> PairsLowering::changes_along(EntryId id) const {
  const Entry& e = entry(id);
  unsigned along = 0;
  switch (e.kind) {
    case Entry::Kind::Scalar: return along;
    case Entry::Kind::Load:
    case Entry::Kind::Iota:
      for (std::size_t g = 0; g < r_.groups_.size(); ++g)
        along |= static_cast<unsigned>(r_.walks(e.index, r_.groups_[g])) << g;
      return along;
    case Entry::Kind::Op:
      for (const EntryId in : e.in) {
        const std::optional<unsigned> of = in == kNoEntry ? 0 : changes_along(in);
        if (!of) return std::nullopt;
        along |= *of;
      }
      return along;
    case Entry::Kind::Pad:
    case Entry::Kind::Reduce:
    case Entry::Kind::Scan:
    case Entry::Kind::LoopState:
    case Entry::Kind::LoopResult:
    case Entry::Kind::Product: break;
  }
  return std::nullopt;
}

/// Finds x and y below what is reduced to r: the largest values that do not change along columns, and along
/// rows. False: there is another one.
bool PairsLowering::find_sides(EntryId id, NestOfPairs& nest) const {
  const unsigned along = *changes_along(id), row = 1u << nest.row, column = 1u << nest.column;
  if (along == 0) return true;
  const Entry& e = entry(id);
  if ((along & row) != 0 && (along & column) != 0)
    return e.kind == Entry::Kind::Op &&
           std::ranges::all_of(e.in, [&](EntryId in) { return in == kNoEntry || find_sides(in, nest); });
  if ((along & (row | column)) == 0) return true;  // of k alone
  if (computed_type(id) != real(nest)) return false;
  EntryId& side = (along & row) != 0 ? nest.x : nest.y;
  if (side != kNoEntry && side != id) return false;
  side = id;
  return true;
}

/// Whether there is one group of rows, one of columns, and one along k. Columns are what is reduced of pairs,
/// or else what the results of pairs lie side by side along.
bool PairsLowering::find_groups(NestOfPairs& nest) const {
  if (r_.groups_.size() != 3) return false;
  for (int g = 0; g < 3; ++g) {
    const Group& group = r_.groups_[static_cast<std::size_t>(g)];
    if (!group.pieces.empty()) return false;
    const bool along = group.reduced ? group.level == 1 : stores_pairs() && lies_along(g);
    (along ? nest.column : !group.reduced ? nest.row : nest.step) = g;
  }
  return nest.row >= 0 && nest.column >= 0 && nest.step >= 0;
}

/// Whether results of pairs are all that the region has.
bool PairsLowering::stores_pairs() const { return r_.p_.places.size() == 2; }

/// Whether the first output lies along a group, element by element.
bool PairsLowering::lies_along(int group) const {
  return r_.p_.outputs.front().at.coef(r_.groups_[static_cast<std::size_t>(group)].last) == 1;
}

/// Adjacent columns that are stored as one: a few, where whatever lies along columns begins at multiples of
/// as many.
int PairsLowering::stored_as_one(const NestOfPairs& nest) const {
  const Group& column = r_.groups_[static_cast<std::size_t>(nest.column)];
  if (column.extent % kStoredAsOne != 0) return 1;
  const auto whole = [&](const Index& at) {
    return at.coef(column.last) == 1 && at.c % kStoredAsOne == 0 &&
           std::ranges::all_of(std::span(at.terms, static_cast<std::size_t>(at.n)), [&](const Term& term) {
             return term.atom < r_.p_.space.axis_count() &&
                    ((column.axes >> term.atom & 1) != 0 || term.coef % kStoredAsOne == 0);
           });
  };
  const bool stores = std::ranges::all_of(
      r_.p_.outputs, [&](const Pulled::Output& o) { return !o.placed && o.behind == 0 && whole(o.at); });
  const bool loads = std::ranges::any_of(r_.p_.entries, [&](const Entry& e) {
    return e.kind == Entry::Kind::Load && e.index.coef(column.last) == 1;
  });
  return stores && (!loads || r_.loads_along(column) == kStoredAsOne) ? kStoredAsOne : 1;
}

/// What is computed with.
DType PairsLowering::real(const NestOfPairs& nest) const { return computed_type(entry(nest.r).in[0]); }

/// Whether there is one reduction along k, and few along columns, all of Float32, or all of Float64.
bool PairsLowering::find_reductions(NestOfPairs& nest) const {
  const DType type = computed_type(entry(r_.reductions_.front().entry).in[0]);
  if (type != DType::Float32 && type != DType::Float64) return false;
  for (const Reduction& r : r_.reductions_) {
    const Op op = r_.op_of(r);
    const ir::Fold fold = ir::info(op).fold;
    if (computed_type(entry(r.entry).in[0]) != type) return false;
    if (fold == ir::Fold::LogAddExp && type != DType::Float32) return false;
    if (r.phase > 0) {
      if (stores_pairs() || kept_of(fold) == Kept::None || nest.kept.size() == kMostReductions) return false;
      nest.kept.push_back(r.entry);
      continue;
    }
    if (nest.r != kNoEntry || has_position(op) || fold == ir::Fold::LogAddExp) return false;
    nest.r = r.entry;
  }
  return nest.r != kNoEntry && nest.kept.empty() == stores_pairs();
}

/// Chooses how results of pairs are stored: by words, or one by one.
void PairsLowering::store_along(NestOfPairs& nest) const {
  const int words = stored_as_one(nest);
  if (nest.each % kStoredAsOne == 0) nest.store = words;
  const std::int64_t tile = std::int64_t{kAcrossStored.threads} * kAcrossStored.each,
                     columns = extent(nest.column);
  if (words > 1 || nest.cut || real(nest) == DType::Float64 ||
      4 * ceil_div(columns, tile) * tile > 5 * columns)
    return;
  nest.threads = kAcrossStored.threads;
  nest.each = kAcrossStored.each;
}

/// False where there is too little work for the tiles of all multiprocessors.
bool PairsLowering::choose_tile(NestOfPairs& nest) const {
  const std::int64_t rows = extent(nest.row), columns = extent(nest.column), steps = extent(nest.step);
  const Entry& made = entry(entry(nest.r).in[0]);
  const bool product =
      made.kind == Entry::Kind::Op && r_.g_[made.node].op == Op::multiply;  // as libraries add
  nest.cut =
      !product && ir::info(r_.op_of(r_.reduction(nest.r))).fold == ir::Fold::Sum && steps > kAddedAsOne;
  const bool doubles = real(nest) == DType::Float64;
  const Across& tile = across(columns, nest.cut, doubles);
  nest.threads = tile.threads;
  nest.each = tile.each;
  // Few rows are dealt to blocks by columns, which tiles of several threads read fewer times.
  if (!stores_pairs() && !nest.cut && !doubles && steps <= kSteps &&
      ceil_div(rows, std::int64_t{kRowsAlone} * kThreadsAlone) >=
          std::int64_t{r_.target_.threads} * kBlocksAlone / 2) {
    nest.threads = 1;
    nest.each = kColumnsAlone;
  }
  if (stores_pairs()) store_along(nest);
  const std::int64_t blocks = ceil_div(rows, tile_rows(nest, rows)),
                     tiles = ceil_div(columns, tile_columns(nest));
  const std::int64_t processors = r_.target_.threads;
  if (5 * rows < 3 * blocks * tile_rows(nest, rows) || blocks * tiles < processors ||
      columns < kLeastColumns || steps < kLeastSteps)
    return false;
  // A third block of two reductions would take its time from the others.
  const int most = nest.kept.size() == 2 && !nest.cut && !has_rows_alone(nest) ? 2 : kMostResident;
  nest.parts = parts_of(blocks, tiles, processors * std::min(most, resident(nest, rows, doubles)));
  return true;
}

std::optional<NestOfPairs> PairsLowering::find() const {
  const schedule::Target& t = r_.target_;
  const Pulled& p = r_.p_;
  if (!t.gpu || t.strict || t.exact || t.templates < schedule::Target::Templates::Few ||
      p.space.has_values() || !p.links.empty() || p.outputs.empty() ||
      (stores_pairs() ? !r_.scans_.empty() || !p.loops.empty() : r_.s_.form != Form::Nest))
    return std::nullopt;
  NestOfPairs nest;
  const auto top = static_cast<int>(p.places.size()) - 1;
  if (std::ranges::any_of(p.outputs, [&](const Pulled::Output& o) { return o.level != top; }))
    return std::nullopt;
  if (!find_groups(nest) || !find_reductions(nest)) return std::nullopt;
  const EntryId made = entry(nest.r).in[0];
  if (!changes_along(made) || !find_sides(made, nest) || nest.x == kNoEntry || nest.y == kNoEntry ||
      !choose_tile(nest))
    return std::nullopt;
  return nest;
}

// ---- hooks

/// A hook at these coordinates, each of a group, or of none.
kernel::Hook PairsLowering::begin(std::string name, Coordinates coordinates) {
  kernel::Hook h{std::move(name), {}, {}, {}, {}, -1};
  r_.axis_.assign(r_.groups_.size(), E{});
  r_.forget();
  for (const auto& [group, which] : coordinates) {
    const E at = r_.size(which, 0);
    h.params.push_back(static_cast<std::uint32_t>(at.node().imm));
    if (group >= 0) r_.axis_[static_cast<std::size_t>(group)] = at;
  }
  return h;
}

/// One of the numbers that come with a hook's call.
E PairsLowering::given_to(kernel::Hook& h) {
  const DType type = real(*r_.pairs_);
  h.buffers.push_back(r_.new_buffer({BufferDecl::Role::In, type, static_cast<std::uint8_t>(size_of(type))},
                                    {BufferSource::Kind::Scratch, 0, 0}));
  return r_.load(h.buffers.back(), type, r_.konst(0));
}

/// Whether what a value is made of lies in memory along this group, element by element.
bool PairsLowering::adjacent_along(EntryId id, int group) const {
  const Entry& e = entry(id);
  if (e.kind == Entry::Kind::Load) return e.index.coef(r_.groups_[static_cast<std::size_t>(group)].last) == 1;
  return std::ranges::any_of(e.in, [&](EntryId in) { return in != kNoEntry && adjacent_along(in, group); });
}

/// Adjacent values of a side that are one access: along k, or along its own group.
int PairsLowering::run_of(int group, bool by_k) const {
  return std::max(1, r_.loads_along(r_.groups_[static_cast<std::size_t>(by_k ? r_.pairs_->step : group)]));
}

kernel::Hook PairsLowering::side_hook(const char* name, EntryId side, int group, bool by_k) {
  r_.phase_ = 0;
  kernel::Hook h = begin(name, {{group, Size::kGivenRow}, {r_.pairs_->step, Size::kGivenColumn}});
  const DType type = real(*r_.pairs_);
  h.buffers.push_back(r_.new_buffer({BufferDecl::Role::Out, type, static_cast<std::uint8_t>(size_of(type))},
                                    {BufferSource::Kind::Scratch, 0, 0}));
  LoopDecl v;
  v.kind = LoopKind::Vector;
  v.var = r_.new_var();
  r_.s_.lanes = run_of(group, by_k);  // of the loads
  v.lanes = static_cast<std::uint16_t>(r_.s_.lanes);
  v.steps = 1;
  v.extent = r_.konst(v.lanes).id;
  E& at = r_.axis_[static_cast<std::size_t>(by_k ? r_.pairs_->step : group)];
  at = at + r_.var(v.var);
  r_.body_ = &v.body;
  E value = r_.build(side);
  // Halves become floats on their way to shared memory: who converts them here waits for them.
  if (const ExprNode made = value.node(); made.prim == Prim::Cast)
    if (const E loaded{value.pool, made.a}; is_half(loaded.type())) {
      value = loaded;
      r_.k_.buffers[h.buffers.back()] = {BufferDecl::Role::Out, loaded.type(), 2};
    }
  v.body.push_back({Stmt::Kind::Store, h.buffers.back(), r_.var(v.var).id, value.id});
  h.body.push_back(r_.loop(std::move(v)));
  r_.s_.lanes = 1;
  return h;
}

kernel::Hook PairsLowering::combined_hook() {
  r_.phase_ = 0;
  kernel::Hook h = begin("combined", {{r_.pairs_->step, Size::kGivenRow}});
  r_.memo_[r_.pairs_->x] = given_to(h);
  r_.memo_[r_.pairs_->y] = given_to(h);
  const E before = given_to(h), made = r_.operand(entry(r_.pairs_->r), 0);
  const AccDecl& acc = r_.k_.accs[r_.reduction(r_.pairs_->r).acc];
  E value = made;
  if (acc.monoid == Monoid::Sum && r_.k_.fma && made.node().prim == Prim::Mul)
    value = kernel::fma({made.pool, made.node().a}, {made.pool, made.node().b}, before);
  else if (acc.monoid != Monoid::Max && acc.monoid != Monoid::Min)
    value = kernel::merge(r_.k_, acc, made, before);
  h.results.push_back(value.id);
  return h;
}

/// What reduction number `which` reduces; there are always as many hooks.
kernel::Hook PairsLowering::value_hook(std::size_t which) {
  const NestOfPairs& n = *r_.pairs_;
  r_.phase_ = 1;
  kernel::Hook h = begin(cat("value", which), {{n.row, Size::kGivenRow}, {n.column, Size::kGivenColumn}});
  r_.memo_[n.r] = given_to(h);
  h.results.push_back(r_.operand(entry(n.kept[std::min(which, n.kept.size() - 1)]), 0).id);
  return h;
}

/// Where what parts of the columns know of rows waits for the last of them.
kernel::Hook PairsLowering::partials_hook() {
  const NestOfPairs& n = *r_.pairs_;
  const std::int64_t words = 2 * static_cast<std::int64_t>(n.kept.size()) * n.parts * extent(n.row);
  kernel::Hook h = begin("partials", {});
  h.address = static_cast<std::int32_t>(r_.partial_buffer(real(n), n.parts > 1 ? words : 1));
  h.results.push_back(r_.konst(0).id);
  return h;
}

kernel::Hook PairsLowering::finish_hook() {
  constexpr Size kPositions[kMostReductions] = {Size::kGivenBatch, Size::kGivenPart, Size::kGivenColumns};
  r_.phase_ = 2;
  kernel::Hook h = begin(
      "finish_row",
      {{r_.pairs_->row, Size::kGivenRow}, {-1, kPositions[0]}, {-1, kPositions[1]}, {-1, kPositions[2]}});
  for (std::size_t i = 0; i < kMostReductions; ++i) {
    const E value = given_to(h);
    if (i >= r_.pairs_->kept.size()) continue;
    const EntryId kept = r_.pairs_->kept[i];
    r_.memo_[kept] = has_position(r_.g_[entry(kept).node].op)
                         ? kernel::cast(kernel::from_index(r_.size(kPositions[i], 0)), computed_type(kept))
                         : kernel::cast(value, computed_type(kept));
  }
  r_.store_level(h.body, r_.phase_);
  return h;
}

/// Stores what is made of the results of a thread's adjacent columns.
kernel::Hook PairsLowering::store_hook() {
  const NestOfPairs& n = *r_.pairs_;
  r_.phase_ = 1;
  kernel::Hook h = begin("store_pairs", {{n.row, Size::kGivenRow}, {n.column, Size::kGivenColumn}});
  const DType type = real(n);
  h.buffers.push_back(r_.new_buffer({BufferDecl::Role::In, type, static_cast<std::uint8_t>(size_of(type))},
                                    {BufferSource::Kind::Scratch, 0, 0}));
  r_.s_.lanes = n.store;
  r_.s_.steps = 1;
  const E first = r_.axis_[static_cast<std::size_t>(n.column)];
  h.body.push_back(r_.lane_loop({first, r_.konst(n.store)}, {n.column}, [&](Body& body) {
    r_.memo_[n.r] = kernel::cast(r_.load(h.buffers.back(), type, r_.lane_), computed_type(n.r));
    r_.store_level(body, r_.phase_);
  }));
  r_.s_.lanes = 1;
  r_.s_.steps = 0;
  return h;
}

// ---- the kernel

void PairsLowering::add_constants(kernel::Template& t, bool x_by_k, bool y_by_k) const {
  const NestOfPairs& n = *r_.pairs_;
  const auto start = [](AccDecl acc) {  // of a float
    if (acc.type == DType::Float64) acc.type = DType::Float32;
    return bits_of(kernel::identity(acc));
  };
  const AccDecl& acc = r_.k_.accs[r_.reduction(n.r).acc];
  t.config = {{"kWidth", 1},
              {"kDouble", real(n) == DType::Float64, true},
              {"kRows", tile_rows(n, extent(n.row))},
              {"kColumns", std::int64_t{n.threads} * n.each},
              {"kDepth", extent(n.step) <= kFewSteps ? kFewSteps : kSteps},
              {"kEachM", rows_of_thread(n)},
              {"kEachN", n.each},
              {"kByWords", n.kept.empty() ? n.store > 1 : n.each % kStoredAsOne == 0, true},
              {"kBlocks", resident(n, extent(n.row), real(n) == DType::Float64)},
              {"kXByK", x_by_k, true},
              {"kYByK", y_by_k, true},
              {"kXRun", run_of(n.row, x_by_k)},
              {"kYRun", run_of(n.column, y_by_k)},
              {"kExtreme", acc.monoid == Monoid::Max   ? 1
                           : acc.monoid == Monoid::Min ? 2
                                                       : 0},
              {"kCut", n.cut, true},
              {"kStart", start(acc)}};
  if (n.kept.empty()) return t.config.push_back({"kStore", n.store});
  if (has_rows_alone(n)) t.config.push_back({"kStaged", kStaged});
  t.config.push_back({"kReductions", static_cast<std::int64_t>(n.kept.size())});
  for (std::size_t i = 0; i < kMostReductions; ++i) {
    const Reduction& r = r_.reduction(n.kept[std::min(i, n.kept.size() - 1)]);
    const AccDecl& a = r_.k_.accs[r.acc];
    const std::int32_t begin =
        a.monoid == Monoid::Custom ? bits_of(r_.k_.customs[a.custom].identity[0]) : start(a);
    t.config.push_back({cat("kKind", i), static_cast<std::int64_t>(kept_of(ir::info(r_.op_of(r)).fold))});
    t.config.push_back({cat("kBegin", i), begin});
  }
}

kernel::Template PairsLowering::main_loop() {
  const NestOfPairs& n = *r_.pairs_;
  const bool x_by_k = adjacent_along(n.x, n.step), y_by_k = adjacent_along(n.y, n.step);
  const char* const name = n.kept.empty() ? "nest_stored" : has_rows_alone(n) ? "nest_short" : "nest_pairs";
  kernel::Template t{name, real(n), {}, {}};
  add_constants(t, x_by_k, y_by_k);
  t.hooks = {side_hook("x_values", n.x, n.row, x_by_k), side_hook("y_values", n.y, n.column, y_by_k),
             combined_hook()};
  if (n.kept.empty()) {
    t.hooks.push_back(store_hook());
    return t;
  }
  for (std::size_t i = 0; i < kMostReductions; ++i) t.hooks.push_back(value_hook(i));
  t.hooks.push_back(partials_hook());
  t.hooks.push_back(finish_hook());
  return t;
}

void PairsLowering::build() {
  const NestOfPairs& n = *r_.pairs_;
  r_.k_.main_loop = main_loop();
  r_.k_.accs.clear();
  r_.k_.customs.clear();
  const int block = block_of(n, extent(n.row));
  r_.s_.threads = {static_cast<std::uint16_t>(block), 1, false};
  const auto narrow = [&](int group) { return static_cast<std::int32_t>(extent(group)); };
  const NestHead head{narrow(n.row), narrow(n.column), narrow(n.step), static_cast<std::int32_t>(n.parts)};
  Lowered& out = r_.out_;
  out.head.resize(sizeof head);
  std::memcpy(out.head.data(), &head, sizeof head);
  out.grid = ceil_div(extent(n.row), tile_rows(n, extent(n.row)));
  out.finish_grid = n.parts > 1 && !n.kept.empty() ? out.grid : 0;
  out.shape.emplace();
  out.shape->grid[0] = static_cast<std::uint32_t>(out.grid * n.parts);
  out.shape->block[0] = static_cast<std::uint32_t>(block);
}

}  // namespace kiln::lower
