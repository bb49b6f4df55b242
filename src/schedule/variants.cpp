#include "schedule/variants.h"

#include "schedule/extents.h"

#include <algorithm>
#include <atomic>

namespace kiln::schedule {
namespace {

constexpr std::int64_t kLeastStreamed = 256
                                        << 10;  // bytes of an output that are worth storing past the caches
constexpr double kOneThreadWork = 1 << 21;      // primitives that one thread may handle sooner than several
constexpr int kMostRegisters = 8;               // side by side
constexpr std::int64_t kMostStripe = 4096;      // columns, see schedule.cpp
constexpr std::int64_t kMostColumns = 32;       // times the lanes
constexpr std::int64_t kLeastChunk = 1024;      // elements
constexpr int kMostScanLanes = 64;              // that the vm combines
constexpr int kShortRow = 8;                    // times the lanes: rows that may lie across them
constexpr std::size_t kMostTaken = 6;           // variants of one schedule
constexpr std::int64_t kMostBatch = 256;        // rows
constexpr std::int64_t kLeastTile = 16, kMostTile = 256;  // elements each way
constexpr std::int64_t kMostBunch = 1024;                 // rows of an item
constexpr int kMostAccumulators = 32;                     // registers
constexpr int kTimes = 4;                                 // how much is described otherwise
constexpr int kManyParts = 16;                            // of a GPU's work

std::atomic<ScheduleHook> hook{nullptr};

bool is_map(const Facts& f) { return f.phases == 0 && !f.scans && f.levels == 1 && !f.slab; }

/// The same with another number of lanes. Blocks stay multiples of them.
std::optional<Schedule> with_lanes(const Facts& f, const Target& t, Schedule s, int lanes) {
  const int base = base_lanes(f, t);
  if (lanes < std::max(2, base / 2) || lanes > kMostRegisters * base) return {};
  if (f.scans && lanes > kMostScanLanes) return {};
  switch (s.form) {
    case Form::Flat:
    case Form::Rows: break;
    case Form::Columns:
    case Form::SplitColumns:
    case Form::Nest: s.block = std::max<std::int64_t>(1, s.block / lanes) * lanes; break;
    case Form::Stripes:
      if (s.block % lanes != 0) return {};
      break;
    case Form::Bunch:
      if (s.block % lanes != 0) return {};
      break;
    case Form::Split:
    case Form::Tiles:
    case Form::Chain:
    case Form::Slab: break;
    case Form::Product: return {};
  }
  if (s.fold > 0 || s.round % lanes != 0) return {};
  s.lanes = lanes;
  return s;
}

/// `n`, `by` times as much of it or -`by` times less, in whole `units`.
std::int64_t scaled(std::int64_t n, int by, std::int64_t units = 1) {
  return (by > 0 ? n * by : n / -by) / units * units;
}

std::optional<Schedule> if_blocks(Schedule s, std::int64_t least, std::int64_t most) {
  return s.block >= least && s.block <= most ? std::optional(s) : std::nullopt;
}

/// The same with blocks of `by` times as many elements, or by -`by` times fewer.
std::optional<Schedule> with_blocks(const Facts& f, Schedule s, int by) {
  const std::int64_t last = f.axes.back().extent, kept = extents_of(f).kept;
  if (s.fold > 0 && s.chunk == 0) {
    s.block = scaled(s.block, by);
    return if_blocks(s, 1, f.axes[static_cast<std::size_t>(s.lane_axis) - 1].extent);
  }
  switch (s.form) {
    case Form::Flat: s.block = scaled(s.block, by); return if_blocks(s, s.lanes, last);
    case Form::Rows:
      if (s.batch > 0) {
        s.batch = scaled(s.batch, by);
        return s.batch > 0 && s.batch <= std::min(kMostBatch, kept) ? std::optional(s) : std::nullopt;
      }
      if (!is_map(f)) return {};
      s.block = scaled(s.block, by, std::max<std::int64_t>(s.round, 1));
      if (s.inside >= 0) return if_blocks(s, 1, f.axes[static_cast<std::size_t>(s.inside)].extent);
      return if_blocks(s, std::max<std::int64_t>(s.round, s.lanes), kept);
    case Form::Tiles: {
      s.block = s.run = scaled(s.block, by / 2);
      return if_blocks(s, kLeastTile, kMostTile);
    }
    case Form::Bunch: s.block = scaled(s.block, by); return if_blocks(s, 2 * s.lanes, kMostBunch);
    case Form::Columns:
    case Form::Nest:
      if (s.fold == 0) {
        s.block = scaled(s.block, by, s.lanes);
        return if_blocks(s, s.lanes, kept);
      }
      [[fallthrough]];
    case Form::Split:
    case Form::SplitColumns:
    case Form::Chain:
      if (s.form == Form::Chain && s.threads.block > 0)
        return {};  // a GPU's chunk is what its registers hold
      s.chunk = scaled(s.chunk, by);
      return s.chunk > 0 ? std::optional(s) : std::nullopt;
    case Form::Stripes: {
      if (s.chunk > 0) {
        s.chunk = scaled(s.chunk, by);
        return s.chunk > 0 ? std::optional(s) : std::nullopt;
      }
      s.block = std::min(scaled(s.block, by, 64), kMostStripe);
      return s.block >= 64 ? std::optional(s) : std::nullopt;
    }
    case Form::Slab:
    case Form::Product: return {};
  }
  return {};
}

/// Results of pairs by tiles of twice as many rows, or of half as many.
std::optional<Schedule> with_rows(const Facts& f, const Target& t, Schedule s, bool more) {
  if (s.tile < 2 || s.tile_axis < 0) return {};
  s.tile = more ? s.tile * 2 : s.tile / 2;
  const std::int64_t rows = f.axes[static_cast<std::size_t>(s.tile_axis)].extent;
  const bool fits = s.tile * s.lanes <= kMostAccumulators * base_lanes(f, t);
  return s.tile >= 2 && s.tile <= rows && fits ? std::optional(s) : std::nullopt;
}

std::optional<Schedule> with_fetches(Schedule s, int fetches) {
  if (s.fetches != 0) return {};
  s.fetches = fetches;
  return s;
}

std::optional<Schedule> in_chunks(const Facts& f, const Target& t, Schedule s) {
  const Extents e = extents_of(f);
  if (s.form != Form::Rows || f.phases != 1 || f.stores_full || !e.last_reduced || s.one_by_one) return {};
  const std::int64_t outer = e.outermost, inner = e.reduced / outer;
  s.form = Form::Split;
  s.chunk = std::max<std::int64_t>(std::max<std::int64_t>(1, kLeastChunk / inner), outer / (8 * t.threads));
  if (inner == 1) s.chunk = (s.chunk + 63) / 64 * 64;
  return s.chunk < outer ? std::optional(s) : std::nullopt;
}

std::optional<Schedule> in_stripes(const Facts& f, Schedule s) {
  const Extents e = extents_of(f);
  if ((s.form != Form::Columns && s.form != Form::SplitColumns) || e.last_reduced || f.in_parts) return {};
  if (f.axes.back().extent < 64) return {};
  s.form = Form::Stripes;
  s.chunk = 0;
  s.block = std::min(kMostStripe, (f.axes.back().extent + 63) / 64 * 64);
  return s.lanes <= 64 && s.block % s.lanes == 0 ? std::optional(s) : std::nullopt;
}

std::optional<Schedule> by_columns(const Facts& f, Schedule s) {
  if ((s.form != Form::Stripes && s.form != Form::SplitColumns) || f.scans) return {};
  s.form = Form::Columns;
  s.chunk = 0;
  s.block = s.lanes;
  return s;
}

/// Of a region that schedule() gives columns of short rows: the rows themselves on lanes.
std::optional<Schedule> rows_on_lanes(const Facts& f, const Target& t, Schedule s) {
  const Extents e = extents_of(f);
  if (s.form != Form::Columns || !e.last_reduced || f.scans || e.reduced > kShortRow * base_lanes(f, t))
    return {};
  s.form = Form::Rows;
  s.lane_axis = static_cast<int>(f.axes.size()) - 1;
  s.block = 0;
  s.lanes = base_lanes(f, t);
  return s;
}

/// The opposite: each lane has a row of its own, whose elements come one after the other.
std::optional<Schedule> rows_beside_rows(const Facts& f, const Target& t, Schedule s) {
  const Extents e = extents_of(f);
  const int lanes = base_lanes(f, t);
  if (s.form != Form::Rows || !e.last_reduced || f.scans || is_map(f)) return {};
  if (e.reduced > kShortRow * lanes || e.kept < 4 * lanes) return {};
  s.form = Form::Columns;
  s.lanes = lanes;
  s.lane_axis = static_cast<int>(f.axes.size()) - 1;
  while (s.lane_axis >= 0 && f.axes[static_cast<std::size_t>(s.lane_axis)].reduced) --s.lane_axis;
  if (s.lane_axis < 0 || f.axes[static_cast<std::size_t>(s.lane_axis)].extent < lanes) return {};
  s.block = lanes * std::clamp<std::int64_t>(e.kept / lanes / (8 * t.threads), 1, kMostColumns);
  return s;
}

std::optional<Schedule> stored(const Facts& f, Schedule s, bool past_caches) {
  if (s.stream == past_caches || (past_caches && f.out_bytes < kLeastStreamed)) return {};
  if (s.form == Form::Tiles) return {};  // their lanes depend on it
  s.stream = past_caches;
  return s;
}

bool is_split(const Schedule& s) { return s.form == Form::Split || s.form == Form::SplitColumns; }

/// Describes a region as if no operand lay across. False: none does, in this schedule.
bool describe_untiled(Facts& f, Target& t, const Schedule& s) {
  if (s.form != Form::Tiles && !(t.gpu && is_split(s) && s.run > 0)) return false;
  f.across = -1;
  f.reduces_across = false;
  return true;
}

std::optional<Schedule> chosen_for(const Facts& f, const Target& t) {
  auto answer = schedule(f, t);
  Schedule* const s = std::get_if<Schedule>(&answer);
  if (!s) return {};
  if (const ScheduleHook h = schedule_hook()) [[unlikely]]
    h(f, *s);
  return *s;
}

/// The same map or reduction in blocks of another size: a map by what a body seems to cost, a reduction by
/// the multiprocessors that work is cut for.
bool describe_blocks(bool smaller, Facts& f, Target& t) {
  constexpr int kLong = 1 << 10;  // primitives of a body, of which a thread has one element under way
  if (is_map(f))
    f.prims = smaller ? kLong : 0;
  else
    t.threads = smaller ? t.threads * kTimes : std::max(1, t.threads / kTimes);
  return true;
}

bool describe_body(Facts& f, int times, int of) {
  f.prims = std::max(1, f.prims * times / of);
  f.row_prims = f.row_prims * times / of;
  return true;
}

bool describe_caches(Target& t, int times, int of) {
  t.l2_bytes = t.l2_bytes * times / of;
  t.held = t.held * times / of;
  return true;
}

/// A GPU's rows by teams of twice as many threads, or of half as many: of rows that a team reads in a known
/// number of steps in half or twice as many. Of columns the parts of a team that share the rows.
std::optional<Schedule> with_team(const Facts& f, Schedule s, bool more) {
  constexpr int kLeast = 8, kWarp = 32, kUsual = 128, kMost = 1024;
  constexpr int kMostSteps = 16;
  if (is_map(f) || f.states > 0) return {};
  const auto team_of = [&](int parts) { return more ? parts * 2 : parts / 2; };
  if (s.form == Form::Rows) {
    const int team = team_of(s.threads.team);
    if (team < kLeast || team > kMost || (more && s.steps % 2 != 0) || (!more && 2 * s.steps > kMostSteps))
      return {};
    s.steps = more ? s.steps / 2 : s.steps * 2;
    const int block = team > kWarp ? team : kUsual;  // barriers are a block's
    s.threads = {static_cast<std::uint16_t>(block), static_cast<std::uint16_t>(team)};
    return s;
  }
  const bool columns = s.form == Form::Columns || s.form == Form::SplitColumns;
  if (!columns || f.scans || s.tile > 1 || s.strips > 1 || s.kept_from >= 0 || (is_split(s) && s.run > 0))
    return {};
  const int width = s.threads.team / s.rows;
  s.rows = team_of(s.rows);
  if (s.rows == 0 || s.rows * width < 32 || s.rows * width > kMost) return {};
  s.threads = {static_cast<std::uint16_t>(s.rows * width), static_cast<std::uint16_t>(s.rows * width)};
  return s;
}

std::optional<Schedule> with_one_thread(const Facts& f, const Target& t, Schedule s) {
  const Extents e = extents_of(f);
  const double work = static_cast<double>(e.kept * e.reduced) * std::max(f.prims, 1);
  if (t.threads < 2 || work > kOneThreadWork) return {};
  s.one_thread = true;
  return s;
}

std::optional<Schedule> in_whole_rows(Schedule s) {
  if (s.form != Form::Split) return {};
  s.form = Form::Rows;
  s.chunk = 0;
  return s;
}

std::optional<Schedule> with_known_sizes(Schedule s) {
  s.known_sizes = true;
  return s;
}

/// A variant: it describes the region otherwise, which begins its schedule anew (null: it does not; false: it
/// is none of one that has the schedule), or it changes the schedule.
struct Way {
  FusionVariant variant;
  bool (*describe)(Facts&, Target&, const Schedule&);
  std::optional<Schedule> (*change)(const Facts&, const Target&, const Schedule&);
};
using V = FusionVariant;

// What either kind of device may be told.
constexpr Way kLongerBody = {
    V::LongerBody, [](Facts& f, Target&, const Schedule&) { return describe_body(f, kTimes, 1); }, nullptr};
constexpr Way kShorterBody = {
    V::ShorterBody, [](Facts& f, Target&, const Schedule&) { return describe_body(f, 1, kTimes); }, nullptr};
constexpr Way kSmallerCaches = {
    V::SmallerCaches, [](Facts&, Target& t, const Schedule&) { return describe_caches(t, 1, kTimes); },
    nullptr};
constexpr Way kLargerCaches = {
    V::LargerCaches, [](Facts&, Target& t, const Schedule&) { return describe_caches(t, kTimes, 1); },
    nullptr};

// In the order in which they are tried. Other forms come first: they differ most.
constexpr Way kWaysOfCpu[] = {
    {V::WholeRows, nullptr, [](const Facts&, const Target&, const Schedule& s) { return in_whole_rows(s); }},
    {V::Chunks, nullptr,
     [](const Facts& f, const Target& t, const Schedule& s) { return in_chunks(f, t, s); }},
    {V::Stripes, nullptr, [](const Facts& f, const Target&, const Schedule& s) { return in_stripes(f, s); }},
    {V::ByColumns, nullptr,
     [](const Facts& f, const Target&, const Schedule& s) { return by_columns(f, s); }},
    {V::RowsOnLanes, nullptr,
     [](const Facts& f, const Target& t, const Schedule& s) { return rows_on_lanes(f, t, s); }},
    {V::RowsBesideRows, nullptr,
     [](const Facts& f, const Target& t, const Schedule& s) { return rows_beside_rows(f, t, s); }},
    {V::RowsAlone, [](Facts& f, Target&, const Schedule&) { return f.rows_alone = true; }, nullptr},
    {V::Untiled, describe_untiled, nullptr},
    {V::FewerLanes, nullptr,
     [](const Facts& f, const Target& t, const Schedule& s) { return with_lanes(f, t, s, s.lanes / 2); }},
    {V::MoreLanes, nullptr,
     [](const Facts& f, const Target& t, const Schedule& s) { return with_lanes(f, t, s, s.lanes * 2); }},
    {V::FourTimesLanes, nullptr,
     [](const Facts& f, const Target& t, const Schedule& s) { return with_lanes(f, t, s, s.lanes * 4); }},
    {V::NoFetches, nullptr,
     [](const Facts&, const Target&, const Schedule& s) { return with_fetches(s, -1); }},
    {V::FarFetches, nullptr,
     [](const Facts&, const Target&, const Schedule& s) { return with_fetches(s, 1); }},
    {V::PastCaches, nullptr,
     [](const Facts& f, const Target&, const Schedule& s) { return stored(f, s, true); }},
    {V::ThroughCaches, nullptr,
     [](const Facts& f, const Target&, const Schedule& s) { return stored(f, s, false); }},
    kLongerBody,
    kShorterBody,
    kSmallerCaches,
    kLargerCaches,
    {V::FewerRows, nullptr,
     [](const Facts& f, const Target& t, const Schedule& s) { return with_rows(f, t, s, false); }},
    {V::MoreRows, nullptr,
     [](const Facts& f, const Target& t, const Schedule& s) { return with_rows(f, t, s, true); }},
    {V::OneThread, nullptr,
     [](const Facts& f, const Target& t, const Schedule& s) { return with_one_thread(f, t, s); }},
    {V::SmallerBlocks, nullptr,
     [](const Facts& f, const Target&, const Schedule& s) { return with_blocks(f, s, -kTimes); }},
    {V::LargerBlocks, nullptr,
     [](const Facts& f, const Target&, const Schedule& s) { return with_blocks(f, s, kTimes); }},
    {V::KnownSizes, nullptr,
     [](const Facts&, const Target&, const Schedule& s) { return with_known_sizes(s); }},
};

// Descriptions of a GPU's region hold for it too, or say only what is worth while.
constexpr Way kWaysOfGpu[] = {
    {V::WholeRows,
     [](Facts& f, Target&, const Schedule& s) {
       f.whole_rows = true;
       return is_split(s);
     },
     nullptr},
    {V::Chunks,
     [](Facts&, Target& t, const Schedule& s) {
       t.threads *= kManyParts;
       return !is_split(s);
     },
     nullptr},
    {V::RowsOnLanes,
     [](Facts& f, Target&, const Schedule& s) {
       f.bunch_bytes = 0;
       return s.form == Form::Bunch;
     },
     nullptr},
    {V::Untiled, describe_untiled, nullptr},
    {V::FewerLanes,
     [](Facts& f, Target&, const Schedule&) {
       for (int* lanes : {&f.vector, &f.flat_vector, &f.across_vector, &f.bunch_vector})
         *lanes = std::max(1, *lanes / 2);
       return true;
     },
     nullptr},
    {V::FewerRows,
     [](Facts& f, Target&, const Schedule& s) {
       f.strip = f.apart = f.repeated = -1;
       return s.tile > 1;
     },
     nullptr},
    kLongerBody,
    kShorterBody,
    kSmallerCaches,
    kLargerCaches,
    {V::SmallerBlocks, [](Facts& f, Target& t, const Schedule&) { return describe_blocks(true, f, t); },
     nullptr},
    {V::LargerBlocks, [](Facts& f, Target& t, const Schedule&) { return describe_blocks(false, f, t); },
     nullptr},
    {V::FewerThreads, nullptr,
     [](const Facts& f, const Target&, const Schedule& s) { return with_team(f, s, false); }},
    {V::MoreThreads, nullptr,
     [](const Facts& f, const Target&, const Schedule& s) { return with_team(f, s, true); }},
    {V::KnownSizes, nullptr,
     [](const Facts&, const Target&, const Schedule& s) { return with_known_sizes(s); }},
};

std::span<const Way> ways_of(const Target& t) {
  return t.gpu ? std::span<const Way>(kWaysOfGpu) : std::span<const Way>(kWaysOfCpu);
}

/// What the region is told of first, then the choice is changed: a description begins it anew.
std::optional<Schedule> varied_by(std::span<const FusionVariant> variants, Facts f, Target t, Schedule s) {
  const Facts as_is = f;
  const std::span<const Way> ways = ways_of(t);
  for (const bool describes : {true, false})
    for (const FusionVariant v : variants) {
      const auto way = std::ranges::find(ways, v, &Way::variant);
      if (way == ways.end()) return {};
      if ((way->describe != nullptr) != describes) continue;
      if (describes && !way->describe(f, t, s)) return {};
      const std::optional<Schedule> other = describes ? chosen_for(f, t) : way->change(as_is, t, s);
      if (!other || *other == s || (t.gpu && v == FusionVariant::Chunks && !is_split(*other))) return {};
      s = *other;
    }
  return s;
}

/// Whether a variant of the region gives the bits of every other: it changes no order in which values are
/// combined.
bool keeps_bits(FusionVariant v, const Facts& f) {
  return is_map(f) || v == FusionVariant::ThroughCaches || v == FusionVariant::PastCaches ||
         v == FusionVariant::OneThread || v == FusionVariant::NoFetches || v == FusionVariant::FarFetches;
}

}  // namespace

void set_schedule_hook(ScheduleHook h) { hook.store(h); }
ScheduleHook schedule_hook() { return hook.load(std::memory_order_relaxed); }

std::optional<Schedule> varied(std::span<const FusionVariant> variants, const Facts& f, const Target& t,
                               const Schedule& chosen) {
  if (variants.empty() || chosen.form == Form::Product || f.both_ways) return {};
  if (t.exact && !std::ranges::all_of(variants, [&](FusionVariant v) { return keeps_bits(v, f); })) return {};
  return varied_by(variants, f, t, chosen);
}

std::vector<FusionVariant> alternatives(const Facts& facts, const Target& target, const Schedule& chosen,
                                        std::span<const FusionVariant> taken) {
  if (taken.size() >= kMostTaken) return {};
  std::vector<Schedule> known{chosen};  // there is no way back to one of them
  for (std::size_t n = 1; n <= taken.size(); ++n)
    if (const auto s = varied(taken.first(n), facts, target, chosen)) known.push_back(*s);
  std::vector<FusionVariant> out, all(taken.begin(), taken.end());
  all.emplace_back();
  for (const Way& way : ways_of(target)) {
    all.back() = way.variant;
    const std::optional<Schedule> s = varied(all, facts, target, chosen);
    if (!s || std::ranges::find(known, *s) != known.end()) continue;
    out.push_back(way.variant);
    known.push_back(*s);
  }
  return out;
}

}  // namespace kiln::schedule
