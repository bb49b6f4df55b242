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
constexpr std::size_t kMostTaken = 4;           // variants of one schedule

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
    case Form::Split:
    case Form::Slab: break;
    case Form::Tiles:
    case Form::Chain:
    case Form::Bunch:
    case Form::Product: return {};
  }
  s.lanes = lanes;
  return s;
}

/// The same with blocks of `by` times as many elements, or by -`by` times fewer.
std::optional<Schedule> with_blocks(const Facts& f, Schedule s, int by) {
  const auto scaled = [by](std::int64_t n) { return by > 0 ? n * by : n / -by; };
  switch (s.form) {
    case Form::Flat:
      s.block = scaled(s.block);
      if (s.block < s.lanes || s.block > f.axes.back().extent) return {};
      return s;
    case Form::Columns:
      s.block = scaled(s.block) / s.lanes * s.lanes;
      if (s.block < s.lanes || s.block > extents_of(f).kept) return {};
      return s;
    case Form::Stripes: {
      if (s.chunk > 0) {
        s.chunk = scaled(s.chunk);
        return s.chunk > 0 ? std::optional(s) : std::nullopt;
      }
      s.block = std::min(scaled(s.block) / 64 * 64, kMostStripe);
      return s.block >= 64 ? std::optional(s) : std::nullopt;
    }
    case Form::Split:
    case Form::SplitColumns: s.chunk = scaled(s.chunk); return s.chunk > 0 ? std::optional(s) : std::nullopt;
    case Form::Rows:
    case Form::Tiles:
    case Form::Chain:
    case Form::Bunch:
    case Form::Nest:
    case Form::Slab:
    case Form::Product: return {};
  }
  return {};
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
bool describe_untiled(Facts& f, const Target& t, const Schedule& s) {
  if (s.form != Form::Tiles && !(t.gpu && is_split(s) && s.run > 0)) return false;
  f.across = -1;
  f.reduces_across = false;
  return true;
}

std::optional<Schedule> chosen_for(const Facts& f, const Target& t) {
  auto answer = schedule(f, t);
  const Schedule* s = std::get_if<Schedule>(&answer);
  return s ? std::optional(*s) : std::nullopt;
}

/// The same map or reduction in blocks of another size: a map by what a body seems to cost, a reduction by
/// the multiprocessors that work is cut for.
void describe_blocks(bool smaller, Facts& f, Target& t) {
  constexpr int kTimes = 4;
  constexpr int kLong = 1 << 10;  // primitives of a body, of which a thread has one element under way
  if (is_map(f))
    f.prims = smaller ? kLong : 0;
  else
    t.threads = smaller ? t.threads * kTimes : std::max(1, t.threads / kTimes);
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

/// Variants of a GPU's schedule that change what schedule() chose; the others change what it is told.
bool changes_choice(FusionVariant v) {
  return v == FusionVariant::KnownSizes || v == FusionVariant::FewerThreads ||
         v == FusionVariant::MoreThreads;
}

/// Describes a GPU's region otherwise: each description holds for it too, or says only what is worth while.
/// False: the variant is no description of one that has the schedule `s`.
bool describe_gpu(FusionVariant variant, Facts& f, Target& t, const Schedule& s) {
  constexpr int kManyParts = 16;
  switch (variant) {
    case FusionVariant::FewerLanes:
      for (int* lanes : {&f.vector, &f.flat_vector, &f.across_vector, &f.bunch_vector})
        *lanes = std::max(1, *lanes / 2);
      return true;
    case FusionVariant::SmallerBlocks:
    case FusionVariant::LargerBlocks:
      describe_blocks(variant == FusionVariant::SmallerBlocks, f, t);
      return true;
    case FusionVariant::WholeRows: f.whole_rows = true; return is_split(s);
    case FusionVariant::Chunks: t.threads *= kManyParts; return !is_split(s);
    case FusionVariant::RowsOnLanes: f.bunch_bytes = 0; return s.form == Form::Bunch;
    case FusionVariant::Untiled: return describe_untiled(f, t, s);
    case FusionVariant::Default:
    case FusionVariant::KnownSizes:
    case FusionVariant::FewerThreads:
    case FusionVariant::MoreThreads:
    case FusionVariant::MoreLanes:
    case FusionVariant::FourTimesLanes:
    case FusionVariant::ThroughCaches:
    case FusionVariant::PastCaches:
    case FusionVariant::OneThread:
    case FusionVariant::Stripes:
    case FusionVariant::ByColumns:
    case FusionVariant::RowsBesideRows:
    case FusionVariant::RowsAlone:
    case FusionVariant::OwnTables:
    case FusionVariant::OneTable:
    case FusionVariant::ReductionsApart:
    case FusionVariant::SiblingsApart:
    case FusionVariant::ProductApart:
    case FusionVariant::AttentionApart:
    case FusionVariant::SharedStored:
    case FusionVariant::ViewsStored:
    case FusionVariant::EachAlone:
    case FusionVariant::Joined: return false;
  }
  return false;
}

std::optional<Schedule> changed_gpu(FusionVariant variant, const Facts& f, Schedule s) {
  if (variant != FusionVariant::KnownSizes) return with_team(f, s, variant == FusionVariant::MoreThreads);
  s.known_sizes = true;
  return s;
}

/// What a GPU's region is told of first, then the choice is changed: a description begins it anew.
std::optional<Schedule> varied_gpu(std::span<const FusionVariant> variants, Facts f, Target t, Schedule s) {
  for (const FusionVariant v : variants) {
    if (changes_choice(v)) continue;
    if (!describe_gpu(v, f, t, s)) return {};
    const std::optional<Schedule> other = chosen_for(f, t);
    if (!other || *other == s || (v == FusionVariant::Chunks && !is_split(*other))) return {};
    s = *other;
  }
  for (const FusionVariant v : variants) {
    if (!changes_choice(v)) continue;
    const std::optional<Schedule> other = changed_gpu(v, f, s);
    if (!other || *other == s) return {};
    s = *other;
  }
  return s;
}

/// A CPU's schedule with one variant more.
std::optional<Schedule> varied_cpu(FusionVariant variant, const Facts& f, const Target& t,
                                   const Schedule& chosen) {
  const Extents e = extents_of(f);
  switch (variant) {
    case FusionVariant::FewerLanes: return with_lanes(f, t, chosen, chosen.lanes / 2);
    case FusionVariant::MoreLanes: return with_lanes(f, t, chosen, chosen.lanes * 2);
    case FusionVariant::FourTimesLanes: return with_lanes(f, t, chosen, chosen.lanes * 4);
    case FusionVariant::SmallerBlocks: return with_blocks(f, chosen, -4);
    case FusionVariant::LargerBlocks: return with_blocks(f, chosen, 4);
    case FusionVariant::ThroughCaches: return stored(f, chosen, false);
    case FusionVariant::PastCaches: return stored(f, chosen, true);
    case FusionVariant::OneThread: {
      const double work = static_cast<double>(e.kept * e.reduced) * std::max(f.prims, 1);
      if (t.threads < 2 || work > kOneThreadWork) return {};
      Schedule s = chosen;
      s.one_thread = true;
      return s;
    }
    case FusionVariant::WholeRows: {
      if (chosen.form != Form::Split) return {};
      Schedule s = chosen;
      s.form = Form::Rows;
      s.chunk = 0;
      return s;
    }
    case FusionVariant::Chunks: return in_chunks(f, t, chosen);
    case FusionVariant::Stripes: return in_stripes(f, chosen);
    case FusionVariant::ByColumns: return by_columns(f, chosen);
    case FusionVariant::RowsOnLanes: return rows_on_lanes(f, t, chosen);
    case FusionVariant::RowsBesideRows: return rows_beside_rows(f, t, chosen);
    case FusionVariant::Untiled: {
      Facts other = f;
      return describe_untiled(other, t, chosen) ? chosen_for(other, t) : std::nullopt;
    }
    case FusionVariant::KnownSizes: {
      Schedule s = chosen;
      s.known_sizes = true;
      return s;
    }
    case FusionVariant::Default:
    case FusionVariant::FewerThreads:
    case FusionVariant::MoreThreads:
    case FusionVariant::RowsAlone:
    case FusionVariant::OwnTables:
    case FusionVariant::OneTable:
    case FusionVariant::ReductionsApart:
    case FusionVariant::SiblingsApart:
    case FusionVariant::ProductApart:
    case FusionVariant::AttentionApart:
    case FusionVariant::SharedStored:
    case FusionVariant::ViewsStored:
    case FusionVariant::EachAlone:
    case FusionVariant::Joined: return {};
  }
  return {};
}

/// Whether a variant of the region gives the bits of every other: it changes no order in which values are
/// combined.
bool keeps_bits(FusionVariant v, const Facts& f) {
  return is_map(f) || v == FusionVariant::ThroughCaches || v == FusionVariant::PastCaches ||
         v == FusionVariant::OneThread;
}

std::atomic<ScheduleHook> hook{nullptr};

}  // namespace

void set_schedule_hook(ScheduleHook h) { hook.store(h); }
ScheduleHook schedule_hook() { return hook.load(std::memory_order_relaxed); }

std::optional<Schedule> varied(std::span<const FusionVariant> variants, const Facts& f, const Target& t,
                               const Schedule& chosen) {
  if (variants.empty() || chosen.form == Form::Product || chosen.fold > 0) return {};
  if (t.exact && !std::ranges::all_of(variants, [&](FusionVariant v) { return keeps_bits(v, f); })) return {};
  if (t.gpu) return varied_gpu(variants, f, t, chosen);
  Schedule s = chosen;
  for (const FusionVariant v : variants) {
    const std::optional<Schedule> other = varied_cpu(v, f, t, s);
    if (!other || *other == s) return {};
    s = *other;
  }
  return s;
}

std::vector<FusionVariant> alternatives(const Facts& facts, const Target& target, const Schedule& chosen,
                                        std::span<const FusionVariant> taken) {
  // Other forms first: they differ most.
  static constexpr FusionVariant kOrder[] = {
      FusionVariant::WholeRows,      FusionVariant::Chunks,        FusionVariant::Stripes,
      FusionVariant::ByColumns,      FusionVariant::RowsOnLanes,   FusionVariant::RowsBesideRows,
      FusionVariant::Untiled,        FusionVariant::PastCaches,    FusionVariant::ThroughCaches,
      FusionVariant::OneThread,      FusionVariant::FewerLanes,    FusionVariant::MoreLanes,
      FusionVariant::FourTimesLanes, FusionVariant::SmallerBlocks, FusionVariant::LargerBlocks,
      FusionVariant::FewerThreads,   FusionVariant::MoreThreads,   FusionVariant::KnownSizes};
  if (taken.size() >= kMostTaken) return {};
  std::vector<Schedule> known{chosen};  // there is no way back to one of them
  for (std::size_t n = 1; n <= taken.size(); ++n)
    if (const auto s = varied(taken.first(n), facts, target, chosen)) known.push_back(*s);
  std::vector<FusionVariant> out, all(taken.begin(), taken.end());
  all.emplace_back();
  for (const FusionVariant v : kOrder) {
    all.back() = v;
    const std::optional<Schedule> s = varied(all, facts, target, chosen);
    if (s && std::ranges::find(known, *s) == known.end()) out.push_back(v);
  }
  return out;
}

}  // namespace kiln::schedule
