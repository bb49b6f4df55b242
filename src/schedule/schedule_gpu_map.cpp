// Schedules of maps for a GPU.
#include "schedule/schedule_gpu.h"

#include <algorithm>

namespace kiln::schedule {
namespace {

constexpr int kSmallBlock = 64;          // threads of a map that would leave multiprocessors without work
constexpr std::int64_t kLongTile = 256;  // elements of a side beside a short one, where the axis has so many:
constexpr std::int64_t kLongRun = 4096;
constexpr std::int64_t kMostAcross = 1024;  // bytes of a tile's operands along a long side
constexpr std::int64_t kLeastTile = 4;
constexpr std::int64_t kManyResults = 1 << 20;                   // whose time tells sizes of tiles apart
constexpr int kVector = 16;                                      // bytes
constexpr std::int64_t kLeastFitted = 128, kFittedBelow = 8192;  // elements of a row that items are cut to

/// Loads in flight hide the latency of memory: about as many vectors a thread whatever the number of
/// operands. A long body leaves time enough for the other threads' loads.
int map_steps(const Facts& f, int lanes) {
  if (f.loads > 3 && narrow_accesses(f, lanes) && f.prims < 2 * kLongBody)
    return 4;  // an item's begin counts
  if (f.prims >= kLongBody || f.loads > 3) return 1;
  return (f.loads > 1 ? 2 : 4) * (narrow_accesses(f, lanes) ? 2 : 1);
}

/// Elements that cannot be read as vectors, along an axis of middling length: where an item begins is
/// computed once for all elements of a thread, not for each, as it is where an item has elements of several
/// rows. Teams and steps are few; the pair that leaves the least work idle is taken.
bool fit_row(std::int64_t row, const Facts& f, Schedule& s) {
  constexpr int kTeams[] = {256, 64}, kSteps[] = {8, 4};
  constexpr double kStart = 1;  // what the begin of an item costs, in elements of a thread
  if (row < kLeastFitted || row >= kFittedBelow) return false;
  double best = 0;
  for (const int team : kTeams)
    for (const int steps : kSteps) {
      const std::int64_t block = std::int64_t{team} * steps;
      const double used = static_cast<double>(row) / static_cast<double>(ceil_div(row, block) * block);
      const double score = used * steps / (steps + kStart);
      if ((steps > 4 && f.prims >= kLongBody) || score <= best) continue;
      best = score;
      s.steps = steps;
      s.threads = {kBlock, static_cast<std::uint16_t>(team)};
    }
  return true;
}

/// A map whose operands begin anywhere in a row: its results by vectors, all axes on lanes as one, or by
/// rounds of a warp where elements are wide. A vector, or a few rounds, are tested before they are computed.
Schedule schedule_windows(const Facts& f, const Target& t, Schedule s, std::int64_t kept) {
  constexpr int kFewLoads = 2;
  s.form = f.axes.size() == 1 ? Form::Flat : Form::Rows;
  s.windows = true;
  s.lanes = std::max(1, f.window);
  s.lane_axis = 0;
  s.ragged = f.axes.size() == 1 || s.lanes == 1 || f.axes.back().extent % s.lanes != 0;
  // Short loads beside results of more than a vector: more of them must be in flight.
  const bool short_loads = s.lanes * f.out_narrowest > kVector && f.loads <= kFewLoads;
  s.steps = std::max(short_loads ? 2 : 1, f.window_rounds);
  if (kept < kBlock * s.lanes * s.steps * std::int64_t{t.threads}) s.threads = {kSmallBlock, kSmallBlock};
  s.block = std::int64_t{s.threads.team} * s.lanes * s.steps;
  return s;
}

/// Operands that are contiguous along another axis than the last go through tiles of shared memory: false
/// where there are none, or their runs are too short. Few sizes of tiles: each is a kernel of its own.
bool tile_operands(const Facts& f, std::int64_t kept, Schedule& s) {
  if (f.states > 0 || f.across < 0 || f.across_run < kLeastTile || f.last_run < kLeastTile) return false;
  s.form = Form::Tiles;
  s.steps = 1;
  s.block = s.run = kTile;
  s.run_lanes = f.across_vector;
  const bool low = f.last_run <= kShortTile, narrow = !low && f.across_run <= kShortTile;
  if (low || narrow) {
    const std::int64_t few = low ? f.last_run : f.across_run, many = low ? f.across_run : f.last_run;
    // (Beside few elements a tile of the usual side would have few in all. Small arrays need fewer kernels.)
    const bool large = kept >= kManyResults, very_few = few <= kShortTile / 2;
    const bool is_long = (very_few && (low || large) ? many > kTile : many >= kLongRun) &&
                         kLongTile * f.across_bytes <= kMostAcross;
    // Whole rows of the results are stored as vectors.
    const bool whole = low && large && is_long && (few == kLeastTile || few == kShortTile / 2) &&
                       f.axes.back().extent == few && f.vector % few == 0 && few * f.widest_bytes <= kVector;
    (low ? s.block : s.run) = whole ? few : is_long && very_few ? kShortTile / 2 : kShortTile;
    if (is_long) (low ? s.run : s.block) = kLongTile;
    s.lanes = whole ? static_cast<int>(few) : low || !is_long ? 1 : s.lanes;
    s.run_lanes = low && is_long ? std::clamp(kBank / f.across_narrowest, 1, f.across_vector) : 1;
  }
  s.rows = static_cast<int>(std::max<std::int64_t>(1, s.threads.team * s.lanes / s.block));
  s.run_rows = static_cast<int>(std::max<std::int64_t>(1, s.threads.team * s.run_lanes / s.run));
  for (std::int64_t n = f.axes.back().extent; n < f.last_run && n < s.block;)
    n *= f.axes[static_cast<std::size_t>(--s.lane_axis)].extent;
  return true;
}

/// A map whose elements are where indices say that change along the last axis alone: where a lane's element
/// is is found once for several rows. False where rows are few or short, or threads would be too few.
bool put_rows_inside(const Facts& f, const Target& t, std::int64_t kept, Schedule& s) {
  constexpr std::int64_t kRows = 8, kLeastRows = 4;
  const auto last = static_cast<int>(f.axes.size()) - 1;
  constexpr int kNarrow = 2;  // bytes of elements whose memory takes less time than their places
  if (f.out_narrowest > kNarrow || !f.jumps || f.jumps_along != last || last == 0 || f.states > 0 ||
      f.prims >= 2 * kLongBody)
    return false;
  const std::int64_t row = f.axes.back().extent, rows = f.axes[static_cast<std::size_t>(last - 1)].extent;
  if (row < kWarp || rows < kLeastRows || kept / kRows < std::int64_t{t.threads} * kBusy) return false;
  // The largest team that leaves hardly more threads idle than the smallest.
  int team = kWarp;
  const auto made = [&](int threads) { return ceil_div(row, threads) * threads; };
  for (int threads = kWarp; threads <= kBlock; threads *= 2)
    if (16 * made(threads) <= 17 * made(kWarp)) team = threads;
  s.form = Form::Rows;
  s.inside = last - 1;
  s.block = std::min(rows, kRows);
  s.lanes = 1;
  s.steps = 0;
  s.threads = {kBlock, static_cast<std::uint16_t>(team)};
  return true;
}

/// A map whose rows share what they read: a thread has several of them (lower/region_strips.cpp).
bool has_strips(const Facts& f, const Target& t, std::int64_t kept, Schedule& s) {
  if (f.strip < 0 || f.states > 0 || kept / f.strip_rows / f.strip_vector < std::int64_t{t.threads} * kBusy)
    return false;
  s.form = Form::Rows;
  s.tile = f.strip_rows;
  s.tile_axis = f.strip;
  s.lanes = f.strip_vector;
  s.steps = 1;
  s.block = std::int64_t{kBlock} * s.lanes;
  return true;
}

}  // namespace

Schedule schedule_map(const Facts& f, const Target& t, Schedule s, std::int64_t kept) {
  if (tile_operands(f, kept, s)) return s;
  if (f.states == 0 && f.window + f.window_rounds > 0)
    return has_strips(f, t, kept, s) ? s : schedule_windows(f, t, s, kept);
  if (put_rows_inside(f, t, kept, s) || has_strips(f, t, kept, s)) return s;
  const bool one_axis = f.axes.size() == 1;
  s.form = one_axis ? Form::Flat : Form::Rows;
  if (one_axis) s.lanes = f.vector;  // its last vector may be cut
  const bool flat = !one_axis && f.states == 0 && f.flat_vector > s.lanes;
  if (flat) s.lanes = f.flat_vector;
  s.steps = f.states > 0 ? 1 : map_steps(f, s.lanes);
  const bool fitted =
      !one_axis && !flat && f.states == 0 && s.lanes == 1 && fit_row(f.axes.back().extent, f, s);
  if (kept < kBlock * s.lanes * s.steps * std::int64_t{t.threads}) {
    s.steps = 1;
    s.threads = {kSmallBlock, static_cast<std::uint16_t>(one_axis ? kSmallBlock : kSmallBlock / 2)};
  }
  s.block = s.threads.team * s.lanes * s.steps;
  // What a run shares, such as a filter, is loaded once for some elements of each thread, one after the
  // other.
  constexpr int kManyFixed = 8;
  constexpr std::int64_t kRounds = 4;
  s.ragged = one_axis || flat;
  if (flat) s.lane_axis = 0;
  std::int64_t run = f.axes.back().extent;
  while (!fitted && s.lane_axis > 0 && run < s.block)
    run *= f.axes[static_cast<std::size_t>(--s.lane_axis)].extent;
  if (f.prims >= kLongBody && f.fixed >= kManyFixed && f.states == 0 && !one_axis && !flat && run > s.block &&
      kept >= 16 * s.block * t.threads) {
    s.block *= std::min(kRounds, ceil_div(run, s.block));
    s.steps = 0;
  }
  return s;
}

}  // namespace kiln::schedule
