// What the two halves of the schedules for a GPU share: schedule_gpu.cpp has reductions and scans,
// schedule_gpu_map.cpp maps.
#pragma once

#include "schedule/extents.h"

namespace kiln::schedule {

constexpr int kBlock = 256;  // threads of a block, where nothing says otherwise
constexpr int kWarp = 32;
constexpr int kLongBody = 30;       // primitives from which code for several elements takes long to compile
constexpr int kBusy = 512;          // threads that keep a multiprocessor's loads in flight
constexpr std::int64_t kTile = 64;  // elements each way of a tile in shared memory
constexpr std::int64_t kShortTile = 16;  // where an axis has no more than that
constexpr int kBank = 4;                 // bytes of shared memory that a thread reads or writes at once

/// Whether a thread's accesses are short: more of them must be in flight.
inline bool narrow_accesses(const Facts& f, int lanes) { return lanes * f.widest_bytes < 16; }

/// A map: a thread has some vectors of a row, or of all elements as one where operands and results have them
/// so in memory. `s` has the lanes of the last axis; `kept` are the points.
Schedule schedule_map(const Facts& f, const Target& t, Schedule s, std::int64_t kept);

/// Of rows that blocks read again from the second cache: how many blocks run at a time, so that it has the
/// rows of all; 0: any number.
std::int64_t rows_under_way(const Facts& f, const Target& t, const Schedule& s);

}  // namespace kiln::schedule
