// What the parts of the schedules for a GPU share: schedule_gpu.cpp has reductions and scans,
// schedule_gpu_scan.cpp scans in chunks, schedule_gpu_map.cpp maps, schedule_gpu_both_ways.cpp reductions of
// rows and columns by one reading.
#pragma once

#include "schedule/extents.h"

namespace kiln::schedule {

constexpr int kBlock = 256;  // threads of a block, where nothing says otherwise
constexpr int kMaxBlock = 1024;
constexpr int kTileBlock = 128;  // the same where a thread has results of several rows
constexpr int kWarp = 32;
constexpr int kWaves = 4;           // blocks a multiprocessor when work is cut freely
constexpr int kLongBody = 30;       // primitives from which code for several elements takes long to compile
constexpr int kBusy = 512;          // threads that keep a multiprocessor's loads in flight
constexpr std::int64_t kTile = 64;  // elements each way of a tile in shared memory
constexpr std::int64_t kShortTile = 16;  // where an axis has no more than that
constexpr int kBank = 4;                 // bytes of shared memory that a thread reads or writes at once

constexpr int kNarrow = 8;            // threads across columns that are vectors (128 bytes a row), or few
constexpr int kLeastRows = 8;         // of a part of a team
constexpr int kColumnRegisters = 40;  // of a thread: loads in flight and accumulators of its columns

/// Adjacent columns of a thread: as many as its registers have sums and loads in flight for. An element's
/// loads are kInFlight at a time, so they take a register a byte.
inline int column_lanes(const Facts& f, int lanes) {
  while (lanes > 2 && lanes * (f.kept + f.loaded_bytes) > kColumnRegisters) lanes /= 2;
  return lanes;
}

/// Whether a thread's accesses are short: more of them must be in flight.
inline bool narrow_accesses(const Facts& f, int lanes) { return lanes * f.widest_bytes < 16; }

/// Shared memory that a block asks for where it needs so many bytes. Few sizes: each is a kernel of its own;
/// but of large ones no more is left over than lets a multiprocessor have another block.
inline std::int64_t room_for(std::int64_t bytes) {
  constexpr std::int64_t kSmall = 32 << 10, kParts = 16;
  std::int64_t room = 4 << 10;
  while (room < bytes) room *= 2;
  return room <= kSmall ? room : ceil_div(bytes, room / kParts) * (room / kParts);
}

/// A map: a thread has some vectors of a row, or of all elements as one where operands and results have them
/// so in memory. `s` has the lanes of the last axis; `kept` are the points.
Schedule schedule_map(const Facts& f, const Target& t, Schedule s, std::int64_t kept);

/// Reductions of rows that are combined with several others: a team has the results of several rows of the
/// axis that the largest load repeats along, and reads that load's row once for all. Teams are as small as
/// keeps what a thread adds up in turn short, and larger where rows are too few for multiprocessors
/// otherwise. False where these would be without work anyway.
bool tile_rows(const Facts& f, const Target& t, const Extents& e, Schedule& s);

/// The same where rows are too few for that, but long: chunks of several rows.
bool split_tiles(const Facts& f, const Target& t, const Extents& e, Schedule& s);

/// Rows of narrow elements that begin anywhere are taken by the vectors of memory that they lie in, of which
/// the first and the last may have elements of others. Not rows of which these leave many lanes of a warp
/// idle, nor, unless they are scanned, what combines several elements at a time. Rows of several axes, of
/// which the last has no whole vectors, are taken by vectors as one where they begin with one, of half an
/// access at least. Returns the elements that a team must have room for.
std::int64_t begin_early(const Facts& f, const Extents& e, Schedule& s);

/// Whether a scan is cut into chunks, which then `s` says: a long one beside few others.
bool chain(const Facts& f, const Target& t, const Extents& e, Schedule& s);

/// Reductions along different axes of each element as it is read (Facts::both_ways).
Schedule schedule_both_ways(const Facts& f, const Target& t, const Extents& e, Schedule s);

/// Reductions that depend on each other along outer axes and a short last one, with kept ones between: see
/// grouped_columns. False where a block has no room for its columns.
bool group_columns(const Facts& f, const Target& t, const Extents& e, bool cut, Schedule& s);

/// Of rows that blocks read again from the second cache: how many blocks run at a time, so that it has the
/// rows of all; 0: any number.
std::int64_t rows_under_way(const Facts& f, const Target& t, const Schedule& s);

}  // namespace kiln::schedule
