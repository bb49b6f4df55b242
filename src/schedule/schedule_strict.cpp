// Schedules of the strict mode. The order in which a reduction combines its elements follows from the extents
// of its kept and reduced axes alone, so that it is the same whatever it is fused with, however many threads
// or lanes there are:
//
//   at most kShort elements, or a kept axis last   one after the other, in row-major order
//   a reduced axis last                            element p of that axis belongs to lane p mod kLanes (on a
//   GPU: of a team
//                                                  whose size follows from the extent); lanes are combined by
//                                                  halves
//   more than strict_in_chunks() allows            the outermost reduced axis in chunks, each in the order
//   above, and
//                                                  then the chunks one after the other
// Scans go one after the other, too, or by registers of kLanes.
//
// Invariant: kLanes, kShort and the chunks decide bits; everything else is free.
#include "schedule/extents.h"

#include <algorithm>

namespace kiln::schedule {
namespace {

constexpr int kLanes = 16;
constexpr std::int64_t kShort = 16;
constexpr std::int64_t kRowChunk = 16384, kColumnChunk = 1024;  // elements
constexpr std::int64_t kMostChunks = 1024;

constexpr std::int64_t kMostColumns = 32;  // registers of columns a grid item takes
constexpr int kBlock = 256;                // threads of a GPU's block
constexpr int kMostSteps = 32;             // of a row that a team holds in registers

std::int64_t chunk_of(const Extents& e) {
  if (!strict_in_chunks(e.reduced, !e.last_reduced)) return 0;
  const std::int64_t inner = e.reduced / e.outermost;
  return std::max({std::int64_t{1}, (e.last_reduced ? kRowChunk : kColumnChunk) / inner,
                   ceil_div(e.outermost, kMostChunks)});
}

/// The team that reduces a row, and its elements a thread.
void share_row(const Facts& f, const Extents& e, Schedule& s) {
  const int team = e.reduced <= 32 * kMostSteps ? 32 : e.reduced <= kBlock * kMostSteps ? kBlock : 2 * kBlock;
  s.threads = team == 32
                  ? kernel::Threads{128, 32}
                  : kernel::Threads{static_cast<std::uint16_t>(team), static_cast<std::uint16_t>(team)};
  const bool read_again = f.phases > 1 || f.stores_full;
  if (f.scans || !read_again || e.reduced_axes != 1) return;
  for (s.steps = 1; e.reduced > static_cast<std::int64_t>(team) * s.steps; s.steps *= 2) {
  }
}

/// Rows, each on lanes or in chunks on lanes.
Schedule rows(const Facts& f, const Target& t, const Extents& e, Schedule s) {
  s.chunk = f.scans ? 0 : chunk_of(e);
  s.form = s.chunk ? Form::Split : Form::Rows;
  s.lanes = t.gpu ? 1 : kLanes;
  if (!t.gpu) return s;
  if (s.chunk)
    s.threads = {kBlock, kBlock};
  else
    share_row(f, e, s);
  return s;
}

/// Columns on lanes, one element after the other, or in chunks.
Schedule columns(const Facts& f, const Target& t, const Extents& e, Schedule s) {
  const std::int64_t width = f.axes[static_cast<std::size_t>(e.last_kept)].extent;
  s.lane_axis = e.last_kept;
  s.chunk = f.scans ? 0 : chunk_of(e);
  s.form = s.chunk ? Form::SplitColumns : Form::Columns;
  if (t.gpu) {
    const int block = width >= kBlock ? kBlock : 32;
    s.threads = {static_cast<std::uint16_t>(block), static_cast<std::uint16_t>(block)};
    s.steps = 1;
    s.lanes = 1;
    s.block = block;
    return s;
  }
  s.lanes = base_lanes(f, t);
  if (f.prims <= 6 && width >= 4 * s.lanes) s.lanes *= 4;
  s.block = s.lanes;
  if (!s.chunk) s.block *= std::clamp<std::int64_t>(e.kept / s.lanes / (8 * t.threads), 1, kMostColumns);
  return s;
}

}  // namespace

bool strict_in_chunks(std::int64_t reduced, bool columns) {
  return reduced > (columns ? kColumnChunk : kRowChunk);
}

Schedule schedule_strict(const Facts& f, const Target& t) {
  const Extents e = extents_of(f);
  Schedule s;
  s.stream = !t.gpu && f.out_bytes >= t.stream_bytes;
  s.lane_axis = static_cast<int>(f.axes.size()) - 1;
  const bool short_rows = e.reduced <= kShort && !f.scans;
  if (e.last_reduced && !short_rows) return rows(f, t, e, s);
  if (e.last_kept >= 0) return columns(f, t, e, s);
  s.form = Form::Rows;
  s.one_by_one = true;
  if (t.gpu) s.threads = {32, 32};
  return s;
}

}  // namespace kiln::schedule
