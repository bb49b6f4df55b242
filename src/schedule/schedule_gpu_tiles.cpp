// Rows that are combined with several others, as those of a product with short sums are with each column: a
// team of a GPU has several rows' results, and reads once what these have in common.
#include "schedule/schedule_gpu.h"

#include <algorithm>

namespace kiln::schedule {
namespace {

constexpr int kMostTiled = 16;                         // rows that share a team, …
constexpr int kFewTiled = 4;                           // … or chunks of them
constexpr int kTileAccumulators = 64;                  // of a thread of a team that has several rows' results
constexpr std::int64_t kAddedByThread = kAddedByTeam;  // elements that such a thread adds up in turn
constexpr std::int64_t kLeastOfThread = 4;             // or vectors of them, in a larger team than that
constexpr int kBusyTiled = 768;  // threads with several results that keep a multiprocessor busy
constexpr int kFewBytes = 8;     // of an element's loads: of more, rows alone have more in flight
constexpr int kFewLanes = 4;     // of which half would be short accesses

/// With vectors of so many lanes.
bool tile_rows_by(int lanes, const Facts& f, const Target& t, const Extents& e, Schedule& s) {
  const std::int64_t kept = e.kept, reduced = e.reduced;
  s.lanes = lanes;
  const std::int64_t repeats = f.axes[static_cast<std::size_t>(f.repeated)].extent;
  for (const int team : {8, 32, kTileBlock, kBlock, kMaxBlock / 2}) {
    // The sums of the largest teams are compensated where threads add up more.
    if (team < kMaxBlock / 2 && reduced > std::int64_t{team} * s.lanes * kAddedByThread) continue;
    if (reduced < std::int64_t{team} * s.lanes * kLeastOfThread && team > 8) return false;
    std::int64_t least = 0;
    for (int tile = std::min(kMostTiled, kTileAccumulators / s.lanes); tile >= 4; tile /= 2) {
      const std::int64_t made = ceil_div(repeats, tile) * tile;  // the last tile has some results twice
      const bool busy = kept / tile * team >=
                        std::int64_t{t.threads} * (team < kMaxBlock / 2 ? kBusyTiled : kMaxBlock / 2),
                 lengthy = tile * f.prims > kMostTiled * kLongBody;  // to compile
      if (repeats < tile || !busy || lengthy || (least > 0 && made >= least)) continue;
      least = made;
      s.tile = tile;
    }
    if (least == 0) continue;
    s.form = Form::Rows;
    s.tile_axis = f.repeated;
    const int block = std::max(kTileBlock, team);
    s.threads = {static_cast<std::uint16_t>(block), static_cast<std::uint16_t>(team)};
    return true;
  }
  return false;
}

}  // namespace

bool tile_rows(const Facts& f, const Target& t, const Extents& e, Schedule& s) {
  Schedule by = s;
  const bool tiled = tile_rows_by(s.lanes, f, t, e, by) ||
                     (s.lanes > kFewLanes && tile_rows_by(s.lanes / 2, f, t, e, by = s));
  if (tiled) s = by;
  return tiled;
}

bool split_tiles(const Facts& f, const Target& t, const Extents& e, Schedule& s) {
  const std::int64_t repeats = f.axes[static_cast<std::size_t>(f.repeated)].extent,
                     least = kBlock * f.vector * 2;
  const bool waits = f.loaded_bytes > kFewBytes;
  if (repeats < kFewTiled || waits || f.in_parts || f.read_twice > 0 || f.states > 0 || e.reduced < 2 * least)
    return false;
  s.form = Form::Split;
  s.ragged = true;
  s.lanes = f.vector;
  s.tile = kFewTiled;
  s.tile_axis = f.repeated;
  const std::int64_t tiles = e.kept / repeats * ceil_div(repeats, kFewTiled),
                     want = std::max<std::int64_t>(1, kWaves * 2 * t.threads / tiles);
  s.chunk = ceil_div(std::max(ceil_div(e.reduced, want), least), least) * least;
  return true;
}

}  // namespace kiln::schedule
