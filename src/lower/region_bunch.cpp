// Bunches: reductions and scans of short rows that lie one after the other in memory. A grid item is a bunch
// of rows. On a CPU lanes are rows (region_turned.cpp). A GPU's threads copy all its elements to shared
// memory, adjacent ones by adjacent threads; then each thread goes along a row of its own there; whole
// results go back through shared memory likewise. Without that, adjacent threads would read and write
// addresses a row apart.
//
// A slab is what lies behind one point of the outer kept axes: the reduced axes, and the kept axes among and
// behind them. It has a row for each point of the latter.
//
// Invariant: elements of a bunch are numbered as they lie in memory, in every tile alike.
#include "lower/accesses.h"
#include "lower/region_lowering.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>
#include <vector>

namespace kiln::lower {
namespace {

constexpr std::int64_t kBanks = 32;  // of shared memory: a row that is a multiple of them would use one

constexpr std::int64_t kWord = 4;  // bytes of a bank's word

/// How threads go along the rows of a bunch: slabs of `slab` elements have `rows` rows; `together` elements
/// of a row are one access; `left_out` elements are left out behind every `every`.
struct BunchWalk {
  std::int64_t rows, slab, together = 1, every = kBanks, left_out = 1;
};

BunchWalk bunch_walk(std::int64_t rows, std::int64_t slab, std::int64_t size, std::int64_t words,
                     std::int64_t vector) {
  return words == 1 ? BunchWalk{rows, slab} : BunchWalk{rows, slab, words, kBanks * kWord / size, vector};
}

/// How many of the threads whose accesses are made together want a word of the same bank at most, each going
/// along its own row, `shifted` as bunch_index says.
int conflicts(const BunchWalk& w, std::int64_t size, bool shifted) {
  constexpr std::int64_t kWarp = 32;
  const std::int64_t access = std::max(kWord, w.together * size), parts = access / kWord;
  int most = 0;
  for (std::int64_t k = 0; k < w.slab; k += w.together > 1 ? w.together : w.rows) {
    std::array<std::vector<std::int64_t>, kBanks> words;
    for (std::int64_t thread = 0; thread < kWarp / parts; ++thread) {
      const std::int64_t at = thread / w.rows * w.slab + thread % w.rows + k,
                         word = (at + (shifted ? at / w.every * w.left_out : 0)) * size / access;
      std::vector<std::int64_t>& bank = words[static_cast<std::size_t>(word % (kBanks / parts))];
      if (!std::ranges::count(bank, word)) bank.push_back(word);
      most = std::max(most, static_cast<int>(bank.size()));
    }
  }
  return most;
}

}  // namespace

/// Whether an index takes all groups as one, in the order of the loops, or of those that may begin at the
/// end.
bool RegionLowering::runs_through(const Index& index) const {
  std::int64_t stride = 1;
  for (std::size_t g = groups_.size(); g-- > 0;) {
    if (index.coef(groups_[g].last) != (groups_[g].backwards ? -stride : stride)) return false;
    stride *= groups_[g].extent;
  }
  return std::all_of(index.terms, index.terms + index.n,
                     [&](const Term& t) { return t.atom < p_.space.axis_count(); });
}

/// A GPU's threads also copy rows some of which are not there, and slabs that do not lie one after the other.
bool RegionLowering::bunched(const Entry& e) const {
  if (e.kind != Entry::Kind::Load || e.inside) return false;
  return target_.gpu ? runs_in_slabs(e.index) : e.predicates < 0 && runs_through(e.index);
}

/// Whether an index does so within each point of the first group, perhaps backwards along what is scanned and
/// along that group.
bool RegionLowering::runs_in_slabs(const Index& index) const {
  std::int64_t stride = 1;
  for (std::size_t g = groups_.size(); g-- > 0;) {
    const std::int64_t by = index.coef(groups_[g].last);
    const bool apart = g == 0 && by != 0 && !groups_[g].reduced;
    if (by != stride && !(groups_[g].reduced && by == -stride) && !apart) return false;
    stride *= groups_[g].extent;
  }
  return std::all_of(index.terms, index.terms + index.n,
                     [&](const Term& t) { return t.atom < p_.space.axis_count(); });
}

/// What a bunch would have in shared or scratch memory, in bytes an element, and how many elements go there
/// at once: on a CPU those of the narrowest type in 16 bytes.
void RegionLowering::find_bunch(schedule::Facts& f) const {
  const bool slab = target_.gpu && f.slab;  // whose outputs need no tiles
  if (target_.strict || (phases_ == 0 && scans_.empty()) || !p_.loops.empty()) return;
  if (p_.places.size() > 2 &&
      (!slab || !std::ranges::is_partitioned(groups_, [](const Group& g) { return !g.reduced; })))
    return;
  std::int64_t bytes = 0, elements = target_.gpu ? 8 : 2;
  bool aligned = true;
  const auto add = [&](NodeId node, std::int64_t base, const Index& index) {
    const std::int64_t size = size_of(g_[node].dtype), first = index.c;
    bytes += size;
    elements =
        target_.gpu ? std::min(elements, kAccessBytes / size) : std::max(elements, kAccessBytes / size);
    aligned &= base % kAccessBytes == 0 && first * size % kAccessBytes == 0 && runs_through(index);
  };
  for (const auto& o : p_.outputs) {
    if (o.row || slab) continue;
    if (!(target_.gpu ? runs_in_slabs(o.at) : runs_through(o.at)) || g_[o.node].op == Op::loop_stack) return;
    add(o.node, o.placed ? g_.args[regions_.placements.at(o.node).arg].alignment : 0, o.at);
  }
  for (const Entry& e : p_.entries) {
    if (!bunched(e)) {
      if (!target_.gpu && e.kind == Entry::Kind::Load && !read_by_slabs(e)) return;
      continue;
    }
    const GraphNode& n = g_[e.node];
    ++f.bunch_operands;
    add(e.node, n.op == Op::leaf ? g_.args[static_cast<std::size_t>(n.arg)].alignment : 0, e.index);
  }
  f.bunch_bytes = static_cast<int>(bytes);
  if (!aligned && target_.gpu && slab) elements = 1;
  if (!aligned && target_.gpu)
    while (elements > 1 && !bunches_in_runs(elements)) elements /= 2;
  f.bunch_vector = static_cast<int>(elements);
}

/// Whether vectors of so many elements lie within the runs of the last group, which is kept, and begin where
/// those of memory do, although the slabs of a GPU's bunch do not lie one after the other, are there for a
/// part of the points or go backwards.
bool RegionLowering::bunches_in_runs(std::int64_t elements) const {
  if (groups_.back().reduced || groups_.back().backwards || groups_.back().extent % elements != 0)
    return false;
  for (const Entry& e : p_.entries)
    if (bunched(e) && (!begins_whole(e, elements) || lanes_decide(e, elements))) return false;
  return std::ranges::all_of(p_.outputs, [&](const Pulled::Output& o) {
    bool aligned = true;
    return o.row || (!o.placed && o.at.coef(groups_.back().last) == 1 && o.at.c % elements == 0 &&
                     runs_along_last_group(o.at, elements, aligned) && aligned);
  });
}

/// … and whether the bunch at hand is copied by such vectors: it could not be as one stretch.
bool RegionLowering::bunches_by_runs() const {
  if (!target_.gpu || s_.form != Form::Bunch || s_.run_lanes == 1) return false;
  const auto stretch = [&](const Index& index) { return runs_through(index) && index.c % s_.run_lanes == 0; };
  return std::ranges::any_of(
             p_.entries,
             [&](const Entry& e) { return bunched(e) && (e.predicates >= 0 || !stretch(e.index)); }) ||
         std::ranges::any_of(p_.outputs, [&](const Pulled::Output& o) { return !o.row && !stretch(o.at); });
}

/// Elements of a row that a thread reads and writes at once in a bunch's tiles: each row begins with one such
/// access, and so does what else lies along it in memory. 1: rows do not, or are scanned.
int RegionLowering::words_of_bunch() const {
  const Group& last = groups_.back();
  if (!target_.gpu || s_.run_lanes == 1 || !last.reduced || last.backwards || !scans_.empty() ||
      !slab_groups(false).empty() || bunches_by_runs())
    return 1;
  const std::int64_t words = std::gcd(last.extent, std::int64_t{s_.run_lanes});
  // (What lies where an index says is loaded element by element.)
  const bool others = std::ranges::any_of(p_.entries, [&](const Entry& e) {
    return e.kind == Entry::Kind::Load && !bunched(e) && !p_.space.jumps(e.index) && walks(e.index, last) &&
           !begins_whole(e, words);
  });
  return others ? 1 : static_cast<int>(words);
}

/// Whether nothing is left out in a bunch's tiles, whose vectors are those of memory then.
static bool is_plain(const E& shift) { return shift && shift.node().prim == Prim::Const; }

/// Where the element at hand is in a tile. One element is left out behind as many as there are banks, so that
/// rows of most lengths are some banks apart; not where they are so as they lie. Where rows are taken by
/// words, a vector is left out behind all banks' words.
E RegionLowering::bunch_index(DType type) {
  if (!target_.gpu) return turned_index(slab_groups(), type);
  E at = bunch_at_;
  if (!at && s_.form == Form::Slab) {
    at = s_.slabs > 0 ? row_position(0) : inner_position(type);
  } else if (!at) {
    at = axis_.front();
    for (std::size_t g = 1; g < groups_.size(); ++g) at = at * extent(static_cast<int>(g)) + axis_[g];
    at = at - bunch_first_;
  }
  if (is_plain(bunch_shift_)) return at;
  const std::int64_t all = kBanks * kWord / size_of(type), unit = bunch_at_ ? s_.run_lanes : bunch_words_;
  const E left_out = bunch_words_ == 1
                         ? kernel::index_div(at, konst(kBanks))
                         : kernel::index_div(kernel::index_div(at, konst(unit)), konst(all / unit));
  return at + (bunch_shift_ ? left_out * bunch_shift_ : left_out);
}

std::uint32_t RegionLowering::bunch_tile(DType type, std::int64_t elements) {
  const std::int64_t left_out = bunch_words_ == 1
                                    ? elements / kBanks
                                    : (elements / (kBanks * kWord / size_of(type)) + 1) * s_.run_lanes,
                     padded = elements + left_out;
  const std::uint32_t b = scratch_buffer(type, ceil_div(padded * size_of(type), 64) * 64);
  k_.buffers[b].shared = static_cast<std::uint32_t>(padded);
  k_.buffers[b].vector = bunch_words_ > 1 || is_plain(bunch_shift_);  // copied by whole vectors
  return b;
}

/// A loop that copies between memory and tiles, by vectors.
Stmt RegionLowering::copy_loop(const Range& elements, const Fill& fill) {
  std::vector<int> all(groups_.size());
  std::iota(all.begin(), all.end(), 0);
  const int lanes = std::exchange(s_.lanes, bunches_by_runs() ? s_.run_lanes : s_.lanes);
  const Stmt made = lane_loop(elements, all, [&](Body& body) {
    bunch_at_ = lane_;
    fill(body);
  });
  s_.lanes = lanes;
  bunch_at_ = position_ = {};
  LoopDecl& l = k_.loops[made.target];
  l.lanes = static_cast<std::uint16_t>(s_.run_lanes);
  l.steps = 0;
  l.ragged = true;
  return made;
}

void RegionLowering::build_bunch() {
  const auto first_inside =
      std::find_if(groups_.begin(), groups_.end(), [](const Group& g) { return g.reduced; });
  std::vector<int> outer(static_cast<std::size_t>(first_inside - groups_.begin()));
  std::iota(outer.begin(), outer.end(), 0);
  const std::vector<int> kept = kept_groups();
  const std::int64_t rows = product(kept) / product(outer), slab = rows * product(reduced_groups());
  std::int64_t bytes = 0, widest = 0;
  int shifted = 0, as_they_lie = 0;
  bunch_words_ = words_of_bunch();
  const auto add = [&](NodeId node) {
    const std::int64_t size = size_of(g_[node].dtype);
    const BunchWalk walk = bunch_walk(rows, slab, size, bunch_words_, s_.run_lanes);
    bytes += size, widest = std::max(widest, size);
    shifted += conflicts(walk, size, true);
    as_they_lie += conflicts(walk, size, false);
  };
  for (const Entry& e : p_.entries)
    if (bunched(e)) add(e.node);
  for (const auto& o : p_.outputs)
    if (!o.row) add(o.node);
  const bool plain = widest < kWord && shifted >= as_they_lie;  // vectors are copied whole
  bunch_shift_ = plain ? konst(0) : size(kLeftOut, bunch_words_ > 1 ? s_.run_lanes : 1);
  const std::int64_t elements = s_.run / bytes;  // of each tile
  if (elements <= kAddedInOrder * s_.block) bounded_.assign(k_.accs.size(), true);

  LoopDecl grid = open_grid();
  const Range bunch = block_range(var(grid.var), size(kBlock, s_.slabs), size(kRuns, product(outer)));
  const E slab_elements = size(kSlab, slab);
  const Range whole{bunch.first * slab_elements, bunch.count * slab_elements};
  bunch_first_ = whole.first;
  std::vector<std::int32_t> staged(p_.entries.size(), -1);
  const Stmt filled = copy_loop(whole, [&](Body& body) {
    for (EntryId id = 0; id < p_.entries.size(); ++id) {
      if (!bunched(p_.entries[id])) continue;
      const std::uint32_t tile = bunch_tile(g_[p_.entries[id].node].dtype, elements);
      staged[id] = static_cast<std::int32_t>(tile);
      body.push_back(store(tile, bunch_index(g_[p_.entries[id].node].dtype), build(id)));
    }
  });
  if (!k_.loops[filled.target].body.empty()) grid.body.push_back(filled);
  staged_ = std::move(staged);

  for (const auto& o : p_.outputs)
    if (!o.row) bunch_out_.emplace(o.node, bunch_tile(g_[o.node].dtype, elements));
  const E slab_rows = size(kSlabRows, rows);
  const Range row_range = rows == 1 ? bunch : Range{bunch.first * slab_rows, bunch.count * slab_rows};
  grid.body.push_back(lane_loop(row_range, kept, [&](Body& body) { all_phases(body, false); }));
  const auto tiles = std::exchange(bunch_out_, {});
  if (!tiles.empty()) {
    grid.body.push_back(copy_loop(whole, [&](Body& body) {
      for (const auto& o : p_.outputs) {
        if (o.row) continue;
        const E value = load(tiles.at(o.node), g_[o.node].dtype, bunch_index(g_[o.node].dtype));
        body.push_back(store(output_buffer(o.node, false), to_expr(o.at, kOutputOwner + o.node), value));
      }
    }));
  }
  close_grid(std::move(grid), ceil_div(product(outer), s_.slabs));
}

/// Elements from a row of a tile to the next: more than its columns, so that a column is in different banks
/// of a GPU's memory, and its lines in different sets of a CPU's cache.
std::int64_t RegionLowering::tile_pitch(DType type) const {
  constexpr std::int64_t kBank = 4, kLine = 64;
  return s_.block + std::max<std::int64_t>(1, (target_.gpu ? kBank : kLine) / size_of(type));
}

E RegionLowering::tile_index(DType type) { return tile_row_ * konst(tile_pitch(type)) + tile_column_; }

E RegionLowering::tile_value(std::uint32_t buffer) {
  const DType type = k_.buffers[buffer].dtype;
  return load(buffer, type,
              reduces_tiles() && s_.form == Form::SplitColumns
                  ? inner_position(type) * konst(tile_pitch(type)) + lane_
              : s_.form == Form::Tiles || reduces_tiles() ? tile_index(type)
              : s_.form == Form::Columns                  ? column_index(type)
                                                          : bunch_index(type));
}

}  // namespace kiln::lower
