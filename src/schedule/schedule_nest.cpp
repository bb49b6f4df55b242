// Schedules of nests, and whether one is worth having. See build_nest.
//
// Invariant: what says whether one pays knows no more than the planner does, and schedule_nest() finds a
// schedule for every nest: profit is asked before, legality is the planner's unification.
#include "schedule/extents.h"
#include "schedule/schedule.h"

#include <algorithm>
#include <numeric>

namespace kiln::schedule {
namespace {

constexpr int kBlock = 256;             // threads of a GPU's block
constexpr int kPairsBlock = 128;        // the same where a thread has several rows' results
constexpr int kTileResults = 32;        // of a thread, each with a position, …
constexpr int kTileRows = 8;            // … and rows of a tile
constexpr int kLongBody = 30;           // primitives that leave no registers for several rows
constexpr std::int64_t kShortRow = 32;  // elements of level 0 that one thread goes along
constexpr std::int64_t kFewRows =
    1 << 15;  // elements that one thread of a CPU handles sooner than two are woken
constexpr std::int64_t kRowsKept = 96 << 10;  // bytes of results that a thread of a CPU keeps between sweeps
constexpr std::int64_t kHeldRows = 16 << 10;  // bytes of results that a GPU's block keeps beside its slab
constexpr std::int64_t kLeastSlab = 1024;     // elements of a GPU's slab that is a block's alone
constexpr double kWarpsBusy = 16;  // of a multiprocessor, where each has rows or columns of its own
constexpr double kApart =
    4;  // times that memory takes where each lane goes along a short row far from the others'
constexpr std::int64_t kWarpsRow =
    256;  // elements of a row, or vectors, that a warp goes along; longer ones a block
constexpr double kCombined = 300;  // primitives for which a warp could combine its lanes
constexpr double kMargin = 1.03;   // what a nest must bring at least
// A nest is one over pairs (lower/region_pairs.cpp) where so many points read a byte, there are so many rows,
// and so many pairs for each multiprocessor.
constexpr double kReads = 2;
constexpr std::int64_t kPairsRows = 96;

std::int64_t along(const Facts& f, int level) {
  std::int64_t n = 1;
  for (const auto& a : f.axes)
    if (a.reduced && a.level == level) n *= a.extent;
  return n;
}

std::int64_t points_of(const Facts& f) {
  std::int64_t n = 1;
  for (const Facts::Axis& a : f.axes) n *= a.extent;
  return n;
}

/// Level 1 goes on lanes although level 0 lies along memory, where that is short.
bool across_short_rows(std::int64_t innermost, std::int64_t outer, int lanes) {
  return innermost <= lanes && outer >= 2 * lanes;
}

/// A block has a slab, or several small ones, whose elements come to shared memory by vectors.
Schedule gpu_slab(const Facts& f, const Target& t) {
  constexpr std::int64_t kSmall = 2048;  // elements that half of a block's threads are enough for
  constexpr std::int64_t kBlocks = 8;    // of a multiprocessor, where a block has several slabs
  Schedule s;
  s.form = Form::Slab;
  s.lane_axis = static_cast<int>(f.axes.size()) - 1;
  std::int64_t points = 1;
  for (const Facts::Axis& a : f.axes)
    if (a.reduced) points *= a.extent;
  if (points < kLeastSlab) {
    const std::int64_t items = points_of(f) / points;
    s.slabs = std::min(kSmall / points, items / (kBlocks * t.threads));
    const std::int64_t vector = std::max(1, f.bunch_vector), whole = vector / std::gcd(points, vector);
    if (s.slabs > whole) s.slabs -= s.slabs % whole;  // items begin with a vector
    if (s.slabs <= 1) s.slabs = 0;
  }
  const std::uint16_t threads = points <= kSmall ? kBlock / 2 : kBlock;
  s.threads = {threads, threads};
  s.block = threads;
  s.run = f.bunch_bytes > 0 ? held_bytes(t) : 0;
  s.run_lanes =
      static_cast<int>(std::gcd(points * std::max<std::int64_t>(1, s.slabs), std::int64_t{f.bunch_vector}));
  return s;
}

}  // namespace

std::int64_t held_bytes(const Target& t) {
  const bool large =
      t.architecture >= 80 && t.architecture != 86 && t.architecture != 89 && t.architecture < 120;
  return (large ? 64 : 32) << 10;
}

Schedule schedule_nest(const Facts& f, const Target& t) {
  Schedule s;
  s.form = Form::Nest;
  const int last = static_cast<int>(f.axes.size()) - 1;
  const std::int64_t innermost = along(f, 0), outer = along(f, 1);
  s.lane_axis = last;
  if (f.slab && t.gpu) return gpu_slab(f, t);
  if (f.slab) {
    s.form = Form::Slab;
    s.lanes = std::clamp(t.vector_bytes / std::max(f.widest_bytes, 1), 2, 32);
    if (f.prims <= 12 && f.axes[last].extent >= 8 * s.lanes) s.lanes *= 2;
    s.stream = goes_past(f, t, f.out_bytes);
    return s;
  }
  s.lane_level = f.axes[last].reduced ? f.axes[last].level : -1;
  if (!t.gpu) {
    s.lanes = std::clamp(t.vector_bytes / std::max(f.widest_bytes, 1), 2, 32);
    if (s.lane_level == 0 && across_short_rows(innermost, outer, s.lanes)) s.lane_level = 1;
    if (f.prims <= 12 && f.axes[last].extent >= 8 * s.lanes) s.lanes *= 4;
    s.block = s.lanes;
    if (s.lane_level > 0 && f.apart >= 0 && f.axes[last].extent >= 2 * s.lanes &&
        f.axes[static_cast<std::size_t>(f.apart)].extent >= std::int64_t{t.threads} * kPairRows) {
      s.lanes = pair_lanes(f, t);
      s.tile = kPairRows;
      s.tile_axis = f.apart;
    }
    return s;
  }
  if (s.lane_level == 0 && across_short_rows(innermost, outer, static_cast<int>(kShortRow))) s.lane_level = 1;
  s.lanes = s.lane_level == f.axes[last].level && f.axes[last].extent % f.vector == 0 ? f.vector : 1;
  const auto threads = [&](int block, int team) {
    s.threads = {static_cast<std::uint16_t>(block), static_cast<std::uint16_t>(team)};
  };
  if (s.lane_level < 0) {
    const int block = f.axes[last].extent >= kBlock * s.lanes ? kBlock : 32;
    threads(block, block);
    s.steps = 1;
    s.block = block * s.lanes;
    return s;
  }
  const std::int64_t row = along(f, s.lane_level);
  if (row <= kWarpsRow * s.lanes)  // no larger a team than has a vector each
    threads(kPairsBlock, row <= 8 * s.lanes ? 8 : row <= 16 * s.lanes ? 16 : 32);
  else
    threads(kPairsBlock, kPairsBlock);
  const int tile = std::min(kTileRows, kTileResults / s.lanes);
  if (s.lane_level > 0 && f.apart >= 0 && f.prims < kLongBody &&
      f.axes[static_cast<std::size_t>(f.apart)].extent >= std::int64_t{4} * t.threads * tile) {
    s.tile = tile;
    s.tile_axis = f.apart;
  }
  return s;
}

bool holds_slab(const SlabFacts& f, const Target& t) {
  const std::int64_t results = 8 * std::max<std::int64_t>(64, 2 * f.rows) * f.reductions;
  return f.held <= held_bytes(t) && results <= kHeldRows;
}

/// Where a block has the slab on chip, one kernel reads it once. Its sweeps take a multiprocessor about as
/// long as reading 4 bytes an element; small slabs wait at barriers.
static bool gpu_slab_pays(const SlabFacts& f, const Target& t) {
  constexpr double kSwept = 2.75;      // elements a nanosecond of a multiprocessor
  constexpr std::int64_t kBlocks = 2;  // of a multiprocessor that keep it busy
  if (!holds_slab(f, t)) return false;
  const auto time = [&](double prims, double bytes) {
    return t.launch_ns + std::max(prims / t.prims_per_ns, t.traffic_ns(bytes));
  };
  const double apart = time(f.apart[0].prims, f.apart[0].bytes) + time(f.apart[1].prims, f.apart[1].bytes);
  const double busy = std::min(1.0, static_cast<double>(f.items) / static_cast<double>(kBlocks * t.threads)),
               swept = static_cast<double>(f.items * f.points) / (kSwept * t.threads);
  const double one = t.launch_ns + std::max(time(f.prims, f.bytes) - t.launch_ns, swept) / busy;
  return one * kMargin <= apart;
}

bool slab_pays(const SlabFacts& f, const Target& t) {
  constexpr double kRunBegins = 20;  // vector operations for which a sweep could begin a run
  if (t.gpu) return gpu_slab_pays(f, t);
  if (f.rows * 8 > kRowsKept) return false;
  const bool cached = 4 * f.points <= t.l2_bytes / 2;
  const double points = static_cast<double>(f.items * f.points);
  double busy = std::min(1.0, static_cast<double>(f.items) / t.threads);
  if (points <= kFewRows) busy = 1;
  const auto time = [&](double prims, double bytes) {
    return std::max(prims / t.prims_per_ns, t.traffic_ns(bytes));
  };
  const double again = cached ? 4 * points / t.cached_bytes_per_ns : t.traffic_ns(4 * points);
  // Vectors of a short run are the fewer the more it costs to begin and to end it; of a small slab less than
  // a second launch.
  const std::int64_t lanes = std::max(t.vector_bytes / 4, 1), vectors = (f.run + lanes - 1) / lanes;
  const double runs = points / static_cast<double>(f.run),
               idle = static_cast<double>(vectors * lanes) / static_cast<double>(f.run),
               begun = points <= kFewRows ? 0 : runs * f.sweeps * static_cast<double>(lanes) * kRunBegins,
               prims = f.prims * idle + begun;
  const double one = t.launch_ns + (time(prims, f.bytes) + again) / busy;
  const double two =
      2 * t.launch_ns + time(f.apart[0].prims, f.apart[0].bytes) + time(f.apart[1].prims, f.apart[1].bytes);
  return one * kMargin <= two;
}

bool nest_pays(const NestFacts& f, const Target& t) {
  const double points = static_cast<double>(f.kept * f.outer * f.innermost);
  std::int64_t items = f.kept;
  if (f.last_level < 0) items = std::max<std::int64_t>(1, items / (t.gpu ? 32 : t.vector_bytes / 4));
  const bool across =
      f.last_level != 0 || across_short_rows(f.innermost, f.outer, static_cast<int>(kShortRow));
  const std::int64_t row = !across            ? f.innermost
                           : f.last_level < 0 ? std::min<std::int64_t>(f.last, 32)
                           : f.last_level > 0 ? f.last
                                              : f.outer;
  // A multiprocessor is busy with so many warps: a team's are one, or four where its row is long.
  const double at_once = !t.gpu ? t.threads : t.threads * (row <= kWarpsRow ? kWarpsBusy : kWarpsBusy / 4);
  double busy = std::min(1.0, static_cast<double>(items) / at_once);
  if (!t.gpu && points <= kFewRows) busy = 1;
  // Lanes go along short rows of memory, or down columns that no cache holds.
  const double slab = 4 * static_cast<double>(f.innermost) * static_cast<double>(f.last);
  const bool columns = f.last_level != 0;
  if (columns && (f.last < 16 || (!t.gpu && slab > static_cast<double>(t.l2_bytes)))) busy /= 2;
  const bool pairs = t.gpu && f.pairs && t.templates >= Target::Templates::Few &&
                     f.bytes * kReads <= points && f.kept >= kPairsRows &&
                     f.kept * f.outer >= kPairs * t.threads;
  if (pairs) {
    busy = 1;
  } else if (t.gpu) {  // threads that have no element of a short row
    busy *= std::min(1.0, static_cast<double>(row) / (across && f.last_level >= 0 ? 128.0 : 32.0));
    if (!columns && across && f.apart_in_memory) busy /= kApart;
  }
  const auto time = [&](double prims, double bytes) {
    return t.launch_ns + std::max(prims / t.prims_per_ns, t.traffic_ns(bytes));
  };
  // A team's lanes come together at the end of each row that they share.
  const double combined =
      t.gpu && !across && !pairs ? kCombined * static_cast<double>(f.kept) * static_cast<double>(f.outer) : 0;
  const double one = t.launch_ns + (time(f.prims + combined, f.bytes) - t.launch_ns) / busy;
  const double two = time(f.apart[0].prims, f.apart[0].bytes) + time(f.apart[1].prims, f.apart[1].bytes);
  return (pairs ? one : one * kMargin) <= two;
}

}  // namespace kiln::schedule
