// Columns of which adjacent ones have a result together: reductions along outer axes and a short last one,
// with kept axes between. A block keeps its columns in shared memory where they are read again.
#include "schedule/schedule_gpu.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace kiln::schedule {
namespace {

constexpr std::int64_t kWholeRun = 64,
                       kGoodRun = 128;         // bytes of a row that are read as fast as more, or nearly
constexpr std::int64_t kMostGroup = 256;       // columns of a result: a thread combines them
constexpr std::int64_t kOfPart = 4;            // rows of a part of a team, which soon ends otherwise
constexpr int kLeastBlock = 64;                // threads
constexpr std::int64_t kLeastSlab = 16 << 10;  // bytes of a block, which soon ends otherwise
constexpr std::int64_t kMostHeld = 112 << 10;  // … and at most

std::int64_t most_held(const Target& t) {
  return t.architecture >= 90 && t.architecture < 120 ? kMostHeld : held_bytes(t);
}

/// Columns that are `least` or more, whole groups of whole vectors, and leave as few threads of a power of
/// two as may be without one.
std::int64_t columns_of(const GroupedFacts& f, std::int64_t least, std::int64_t most, int lanes) {
  const std::int64_t unit = std::lcm(f.together, std::int64_t{lanes});
  const auto used = [&](std::int64_t columns) {
    const auto vectors = static_cast<std::uint64_t>(columns / lanes);
    return static_cast<double>(vectors) / static_cast<double>(std::bit_ceil(vectors));
  };
  std::int64_t best = 0;
  for (std::int64_t columns = unit; columns <= most && columns <= f.columns; columns += unit) {
    if (columns < least && columns + unit <= std::min(most, f.columns)) continue;
    if (best == 0 || used(columns) > used(best)) best = columns;
    if (used(best) >= 1 || columns > 2 * least) break;
  }
  return best;
}

}  // namespace

std::int64_t grouped_columns(const GroupedFacts& f, int lanes, const Target& t) {
  if (f.together > kMostGroup || f.together * f.bytes >= kWholeRun || f.rows < 2) return 0;
  const std::int64_t column = f.rows * f.bytes, room = most_held(t),
                     whole = std::max<std::int64_t>(1, kWholeRun / f.bytes),
                     wanted = std::max(kGoodRun / f.bytes, ceil_div(kLeastSlab, column)),
                     least = wanted * column <= held_bytes(t) ? wanted : whole;
  const std::int64_t columns = columns_of(f, std::min(least, std::int64_t{kBlock} * lanes),
                                          std::min(room / column, std::int64_t{kBlock} * lanes), lanes);
  if (columns == 0 || (columns < whole && columns < f.columns)) return 0;
  const std::int64_t items = f.items * ceil_div(f.columns, columns);
  return 2 * items >= t.threads ? columns : 0;
}

bool group_columns(const Facts& f, const Target& t, const Extents& e, bool cut, Schedule& s) {
  if (f.folds < 0 || f.states > 0 || f.levels > 1 || f.slab || f.both_ways || cut) return false;
  GroupedFacts g{.bytes = std::max(f.held_bytes, 1)};
  for (std::size_t a = 0; a < f.axes.size(); ++a) {
    const Facts::Axis& x = f.axes[a];
    const bool inside = static_cast<int>(a) > f.folds;
    (inside ? g.columns : x.reduced ? g.rows : g.items) *= x.extent;
    if (inside && x.reduced) g.together *= x.extent;
  }
  int lanes = f.grouped_vector;  // what a phase keeps of them, and reads
  while (lanes > 2 && lanes * (f.kept / std::max(1, f.phases) + f.held_bytes) > kColumnRegisters) lanes /= 2;
  std::int64_t columns = grouped_columns(g, lanes, t);
  while (columns == 0 && lanes > 1) columns = grouped_columns(g, lanes /= 2, t);
  if (columns == 0) return false;
  s.form = Form::Columns;
  s.fold = 1;
  s.lane_axis = f.folds + 1;
  s.lanes = lanes;
  s.steps = 1;
  s.block = columns;
  const std::int64_t bytes = g.rows * columns * g.bytes;
  s.run = room_for(bytes);
  const bool large = s.run > held_bytes(t);
  const int block = large ? 2 * kBlock : kBlock,
            width = static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(columns / lanes)));
  s.rows = std::max(1, block / width);
  while (s.rows > 1 && g.rows < kOfPart * s.rows && width * s.rows > kLeastBlock) s.rows /= 2;
  s.threads = {static_cast<std::uint16_t>(width * s.rows), static_cast<std::uint16_t>(width * s.rows)};
  s.together = e.reduced_axes > 2 && g.rows > f.axes[static_cast<std::size_t>(f.folds)].extent;
  return true;
}

}  // namespace kiln::schedule
