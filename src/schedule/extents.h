// What the schedules of all devices count first of a region: its points, and the lanes of a register.
#pragma once

#include "schedule/schedule.h"

#include <algorithm>
#include <cstdint>

namespace kiln::schedule {

struct Extents {
  std::int64_t kept = 1, reduced = 1;  // points that the region keeps, and those reduced to each of these
  std::int64_t outermost = 1;          // elements of the outermost reduced axis; 1: there is none
  int reduced_axes = 0;
  int last_kept = -1;  // axis
  bool last_reduced = false;
};

inline Extents extents_of(const Facts& f) {
  Extents e;
  for (std::size_t i = 0; i < f.axes.size(); ++i) {
    const Facts::Axis& a = f.axes[i];
    (a.reduced ? e.reduced : e.kept) *= a.extent;
    if (!a.reduced) e.last_kept = static_cast<int>(i);
    if (a.reduced && e.reduced_axes++ == 0) e.outermost = a.extent;
  }
  e.last_reduced = f.axes.back().reduced;
  return e;
}

/// Lanes of a CPU's register.
inline int base_lanes(const Facts& f, const Target& t) {
  return std::clamp(t.vector_bytes / std::max(f.widest_bytes, 1), 2, 32);
}

/// Whether a CPU stores results of so many bytes past the caches. Where the last cache holds them and what
/// they are made of, whoever reads them finds them there.
inline bool goes_past(const Facts& f, const Target& t, std::int64_t bytes) {
  return bytes >= t.stream_bytes && f.touched_bytes >= t.last_cache_bytes;
}

constexpr std::int64_t kSmallWork = 32768;  // elements one thread handles faster than two are woken
constexpr std::int64_t kStripe = 4096;      // columns of a stripe at most: its sums stay in the first cache
constexpr std::int64_t kWideStripe = 1024;  // columns of a stripe that read long runs of memory
constexpr std::int64_t kNearColumns = 64;   // of a block that the second cache has for later phases, at least

/// Columns of a stripe when whole columns are one thread's.
inline std::int64_t stripe_of(std::int64_t columns, std::int64_t outer, const Target& t) {
  const std::int64_t stripes = std::max<std::int64_t>(1, t.threads / outer);
  return std::clamp<std::int64_t>(((columns + stripes - 1) / stripes + 63) / 64 * 64, 64, kStripe);
}

constexpr std::int64_t kMostColumns = 32;       // of a grid item, times the lanes
constexpr std::int64_t kBatchBytes = 32 << 10;  // of a batch of rows: most of the first cache

/// Columns a grid item takes: several times the lanes where that leaves every thread enough items, and the
/// first cache has what phases keep of them. What an item costs besides then counts for less, above all in
/// the vm.
inline std::int64_t block_of_columns(const Facts& f, const Extents& e, int lanes, const Target& t) {
  const std::int64_t kept = e.reduced * lanes * f.kept_bytes,
                     near = kept > 0 ? kBatchBytes / 2 / kept : kMostColumns,
                     most = std::clamp<std::int64_t>(near, 1, kMostColumns);
  return lanes * std::clamp<std::int64_t>(e.kept / lanes / (8 * t.threads), 1, most);
}

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// What the positions of a row with lanes of its own take besides their values (see Schedule, Form::Bunch),
/// in instructions that a lane of a bunch takes: combining lanes, and, without registers of masks, lanes that
/// several registers of a row leave idle.
inline std::int64_t combine_positions(const Facts& f, const Target& t, int lanes) {
  constexpr std::int64_t kCombine = 12, kIdle = 40;
  const std::int64_t row = f.axes.back().extent;
  const bool idle = t.vector_bytes < 64 && row > 2 * lanes && row % (4 * lanes) != 0;
  return f.positions ? kCombine + (idle ? kIdle : 0) : 0;
}

}  // namespace kiln::schedule
