// Schedules for a GPU. A grid item is a block of elements, a row, or a block of columns; a team of threads
// shares it.
//
// Rows that are read more than once stay in registers while a team can hold them: `steps` vectors a thread.
// Steps and teams come in few sizes, so that few kernels serve all row lengths.
#include "schedule/schedule_gpu.h"

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <numeric>
#include <span>

namespace kiln::schedule {
namespace {

constexpr int kHeld = 16;         // registers for a row's values in a thread, where vectors are short, …
constexpr int kHeldByLanes = 32;  // … in a thread of a warp, or of the largest block, …
constexpr int kMostHeld = 48;     // … and where vectors are whole,
constexpr int kMostOfLarge = 32;  // but in a larger block, of which few share a multiprocessor
constexpr int kHeldVectors = 6;   // vectors of a held row that a thread loads, all in flight together
constexpr int kReadVectors = 4;   // vectors of a row read once by a thread of a block, …
constexpr int kReadByLanes = 8;   // … and of a warp
constexpr std::int64_t kSplitAbove = 16384;  // shorter reductions are not worth a second stage, …
constexpr std::int64_t kLong = 65536;        // … nor these where rows nearly keep all multiprocessors busy
constexpr int kTileResults = 32;             // of a thread where each is of a pair, …
constexpr int kStrips = 4;                   // columns of such a thread where they are no vectors
constexpr int kLeastStrip = 16;              // columns of a strip, whose results are stored side by side, …
constexpr int kNarrowStrip = 4;              // … or where a thread combines so many elements, these
constexpr std::int64_t kManyCombined = 64;
constexpr int kShortRow = 8;            // adjacent elements one thread reduces alone
constexpr int kFewVectors = 4;          // of a row, which leave a team's threads without work
constexpr int kShortColumn = 64;        // the same of columns, few of which are adjacent, …
constexpr int kIdleColumn = 32;         // … or which leave lanes of a warp idle
constexpr std::int64_t kFewRows = 512;  // scanned by the largest blocks

constexpr int kFewColumns = 16;                   // of a scan, which would leave half of a warp idle
constexpr int kMostOfMade = 4;                    // parts of one whose elements are made of few
constexpr std::int64_t kLeastRun = 128;           // bytes that are read from memory as fast as more
constexpr std::int64_t kMostColumns = 112 << 10;  // bytes of columns that a block keeps to read them again

/// The team and steps that hold a row in registers; false when it is too long. A row of more than 256 vectors
/// of one or two operands takes two thirds of its block's places or more: a thread without an element has the
/// place of one whose loads would be in flight. Short vectors get fewer sizes. The only row is a block's, so
/// that kernels are fewer.
bool hold_row(std::int64_t row, bool only, int vector, const Facts& f, Schedule& s) {
  const bool whole = vector * f.widest_bytes >= 16;
  const int kept = vector * std::max(1, f.widest_bytes / 4);  // registers that a step's values take
  const int loads = std::max(1, f.row_loads), loaded = loads * std::min(4, kept);  // … and its loads
  struct Team {
    int threads, most;
  };
  // Rows of up to 16 vectors have few lanes, none of them idle; where the body is short, these load two
  // together.
  const auto teams = [&]() -> std::array<Team, 7> {
    constexpr Team kNone{0, 0};
    if (f.prims >= kLongBody) {
      const int most = kHeld / 2 / kept;
      // Rows of up to 64 vectors are a warp's: of a block of 128 more than half would have nothing.
      return {{{8, 1},
               whole ? Team{16, 1} : kNone,
               {32, whole ? std::max(most, 2) : most},
               {128, most},
               {256, most},
               {512, most},
               {kMaxBlock, kHeld / kept}}};
    }
    const int all = kHeldByLanes / std::max(kept, loaded);
    if (!whole && !only && row <= 64) return {{{8, 1}, {8, 8}}};
    if (!whole) {
      const int most = kHeld / kept;
      return {{{8, 1}, {32, kHeldByLanes / kept}, {128, most}, {256, most}, {512, most}, {kMaxBlock, all}}};
    }
    const int most = std::min(kHeldVectors / loads, kMostHeld / kept),
              large = std::min(most, kMostOfLarge / kept);
    return {{{8, 1},
             most > 1 ? Team{8, 2} : Team{16, 1},
             {32, most},
             {128, most},
             {256, large},
             {512, loads == 1 ? all : large},
             {kMaxBlock, all}}};
  };
  for (const Team& team : teams()) {
    if (team.threads == 0 || (only && team.threads < 128)) continue;
    const int longest = std::max(1, team.most);
    for (int steps = 1; steps <= longest; ++steps) {
      const bool many = team.threads == kWarp || team.threads == kMaxBlock;  // all other sizes are half full
      const bool offered =
          whole ? steps <= 4 || steps == 6 : steps == 4 || (many && (steps == 8 || steps == 16));
      if (row > std::int64_t{vector} * steps * team.threads || (!offered && steps != longest)) continue;
      s.threads = {static_cast<std::uint16_t>(std::max(team.threads, 128)),
                   static_cast<std::uint16_t>(team.threads)};
      s.steps = steps;
      return true;
    }
  }
  return false;
}

/// The team and steps that read a row once with all loads in flight together; false when it is long, or its
/// body leaves time for loads one after the other. The only row is a block's, so that kernels are fewer.
bool read_row(std::int64_t row, bool only, const Facts& f, Schedule& s) {
  const std::int64_t vectors = ceil_div(row, s.lanes);
  const int loads = f.row_loads == 1 ? std::min(f.loads, 2) : f.loads;  // rows that all read are near
  if (f.prims >= kLongBody || loads > 2 || vectors > kBlock * kReadVectors) return false;
  struct Team {
    std::uint16_t threads;
    int steps;
  };
  if (loads == 2) {  // each step has two loads in flight; longer rows keep enough of them by themselves
    constexpr Team kOfPairs[] = {{8, 1}, {8, 2}, {8, 4}, {32, 2}, {32, 4}};
    const auto* const pair =
        std::ranges::find_if(kOfPairs, [&](const Team& t) { return vectors <= t.threads * t.steps; });
    if (s.lanes == 1 || only || pair == std::end(kOfPairs)) return false;
    s.threads = {128, pair->threads};
    s.steps = pair->steps;
    return true;
  }
  // Combining a block's threads takes as long as some elements of each: warps go further where that is cheap,
  // without having all of a row's loads in flight.
  constexpr Team kOfElements[] = {{8, 8}, {32, kReadByLanes}, {32, 16}, {kBlock, kReadVectors}},
                 kOfVectors[] = {{8, 8}, {32, kReadByLanes}, {128, kReadVectors}, {kBlock, kReadVectors}};
  const std::span<const Team> teams = s.lanes == 1 ? std::span<const Team>(kOfElements) : kOfVectors;
  const Team& team = *std::find_if(teams.begin(), teams.end(), [&](const Team& t) {
    return vectors <= t.threads * t.steps && (!only || t.threads == kBlock);
  });
  if (s.lanes == 1 && team.threads == kBlock && !only) return false;
  s.threads = {static_cast<std::uint16_t>(team.threads == kBlock ? kBlock : 128), team.threads};
  s.steps = team.steps;
  return true;
}

/// The first of the kept axes that share the lanes where the last one's vectors leave many of a team idle:
/// those behind the reduced axes; of few rows, which a thread has alone, all. -1: the last axis fills them,
/// or a second stage is wanted.
int joined_from(const Facts& f, const Extents& e, int lanes) {
  const bool cut = f.phases == 1 && !f.stores_full, few = e.reduced < kLeastRows;
  if (f.states > 0 || f.guarded || e.kept < kBlock * std::int64_t{lanes} ||
      (cut && e.reduced >= kShortColumn))
    return -1;
  const int last = static_cast<int>(f.axes.size()) - 1;
  int behind = last;
  while (behind > 0 && !f.axes[static_cast<std::size_t>(behind - 1)].reduced) --behind;
  const std::int64_t vectors = ceil_div(f.axes.back().extent, lanes), team = few ? kBlock : kWarp;
  if (8 * vectors > 7 * ceil_div(vectors, team) * team || e.kept == f.axes.back().extent) return -1;
  return few ? 0 : behind < last ? behind : -1;
}

/// Short rows, or short columns, that lie close together: a block takes as many as it has room for, one for
/// each thread at least, and keeps their elements in shared memory. Few sizes of it: each is a kernel of its
/// own. False where rows are long or few, or a team's vectors do as well.
bool bunch_rows(const Facts& f, const Target& t, Schedule& s) {
  if (f.bunch_bytes == 0 || f.states > 0) return false;
  std::int64_t outer = 1, rows = 1, reduced = 1;
  bool inside = false;
  for (const auto& a : f.axes) {
    inside |= a.reduced;
    (a.reduced ? reduced : inside ? rows : outer) *= a.extent;
  }
  const bool last_reduced = f.axes.back().reduced;
  if (f.scans && last_reduced && f.bunch_vector == 1 && reduced <= kShortRow) return false;
  // Threads take long to combine what they keep in parts.
  const int few_vectors = kFewVectors * (f.in_parts ? 4 : 1);
  if (last_reduced && s.lanes > 1 && s.lanes >= f.bunch_vector && reduced > few_vectors * s.lanes)
    return false;
  // Few rows of vectors are a thread's, in registers or shared memory.
  if (!last_reduced && !f.scans && !narrow_accesses(f, s.lanes) && reduced < kLeastRows &&
      f.axes.back().extent * f.loaded_bytes >= kLeastRun)
    return false;
  if (outer * rows < kBlock) return false;
  struct Size {
    int threads;
    std::int64_t bytes;
  };
  constexpr Size kSizes[] = {
      {2 * kBunchThreads, kBunchBytes / 2}, {kBunchThreads, kBunchBytes}, {kBunchThreads / 2, kBunchBytes}};
  for (const Size& size : kSizes) {
    // Few threads only where a thread has a column of its own anyway, or columns are so few that they leave
    // lanes of a warp idle otherwise, which has more of them than parts of a short column keep busy.
    const bool few = f.scans || (f.phases > 1 && rows <= kFewColumns && reduced < kBlock);
    if (size.threads < kBunchThreads && (!few || last_reduced)) continue;
    const std::int64_t slab = rows * reduced, fits = size.bytes / f.bunch_bytes / slab,
                       busy = outer / (std::int64_t{kWaves} * 2 * t.threads),
                       most = std::min(fits, std::max(busy, size.threads / rows)),
                       step = f.bunch_vector / std::gcd(slab, std::int64_t{f.bunch_vector});
    // Items begin with a vector, where they may, and few threads have one row less than the others.
    std::int64_t slabs = most >= step ? most - most % step : most;
    const auto idle = [&] {
      const std::int64_t places = ceil_div(slabs * rows, size.threads) * size.threads;
      return slabs * rows * 4 < places * 3;
    };
    while (slabs > step && idle()) slabs -= step;
    if (slabs == 0 || idle()) continue;
    s.form = Form::Bunch;
    s.lanes = 1;
    s.steps = 0;
    s.block = size.threads;
    s.run = size.bytes;
    s.slabs = slabs;
    s.run_lanes = slabs * slab % f.bunch_vector == 0 ? f.bunch_vector : 1;  // items begin with a vector
    s.threads = {static_cast<std::uint16_t>(size.threads), static_cast<std::uint16_t>(size.threads)};
    return true;
  }
  return false;
}

/// A scan along rows is a team's, step after step; down columns, and along short rows, each thread has its
/// own.
Schedule schedule_scan(const Facts& f, const Target& t, const Extents& e, Schedule s) {
  if (chain(f, t, e, s) || bunch_rows(f, t, s)) return s;
  if (!e.last_reduced || (e.reduced <= kShortRow && e.kept >= kBlock)) {
    s.form = Form::Columns;
    if (!e.last_reduced && f.axes.back().extent < kFewColumns &&
        e.kept >= kBlock) {  // several rows' on the lanes
      s.kept_from = 0;
      s.lanes = s.steps = 1;
      s.block = kBlock;
      return s;
    }
    while (f.axes[static_cast<std::size_t>(s.lane_axis)].reduced) --s.lane_axis;
    if (e.last_reduced) s.lanes = 1;
    s.steps = 1;
    const int block = f.axes[static_cast<std::size_t>(s.lane_axis)].extent >= kBlock * s.lanes ? kBlock : 32;
    s.threads = {static_cast<std::uint16_t>(block), static_cast<std::uint16_t>(block)};
    s.block = block * s.lanes;
    return s;
  }
  s.form = Form::Rows;
  if (!f.scans_of_scans && e.reduced_axes == 1) begin_early(f, e, s);
  if (e.reduced <= 8 * s.lanes * 4)
    s.threads = {128, 8};
  else if (e.reduced <= 32 * s.lanes * (e.kept >= std::int64_t{t.threads} * kBusy / 8 ? 128 : 16))
    s.threads = {128, 32};  // a block combines its threads at each step
  else if (e.kept < kFewRows)
    s.threads = {kMaxBlock, kMaxBlock};
  return s;
}

/// Threads across columns of so many vectors. Where rows are many and have one vector or two, adjacent
/// threads take adjacent rows, which lie side by side.
int threads_across(const Facts& f, std::int64_t vectors, std::int64_t rows, int lanes) {
  if (vectors <= 2 && rows >= kBlock) return static_cast<int>(vectors);
  return !narrow_accesses(f, lanes) || vectors <= kNarrow ? kNarrow
         : vectors <= 2 * kNarrow                         ? 2 * kNarrow
                                                          : 32;
}

/// Threads across columns of so many vectors, and the parts of the team that share the rows. Accesses to 128
/// bytes of one row are enough for the memory; the other threads take other rows. But the parts' results are
/// combined in the end, which costs about as much as kLeastRows of a part's rows: where columns are many,
/// short ones have fewer parts, or a thread of their own. Few sizes: each is a kernel of its own, and what
/// one block does soon has no narrow one.
int share_rows(const Facts& f, const Target& t, std::int64_t vectors, std::int64_t items, std::int64_t rows,
               int parts, Schedule& s) {
  int width = threads_across(f, vectors, rows, s.lanes);
  if (width == kNarrow && vectors >= 2 * kNarrow) width = std::min(32, width * parts);
  // A second block of few columns would keep as many threads as the first.
  if (vectors > width && 2 * vectors <= 3 * width && rows >= kBlock) width *= 2;
  if (vectors * items <= kNarrow && rows <= std::int64_t{kBlock} / 32 * kLeastRows)
    width = std::max(width, 32);
  const auto busy = [&](int parts) { return vectors * items * parts >= std::int64_t{t.threads} * kBusy; };
  s.rows = kBlock / width;
  // (A loop need not end for the lanes of columns that are not there where threads share nothing.)
  const bool alone = f.states > 0 || (s.lanes > 1 && rows < s.rows);
  const bool wide = 4 * vectors >= 3 * 32;  // few lanes of a warp have no column
  const bool made = f.loaded_bytes == 0 && !f.jumps && f.states == 0 && rows >= 2 * kLeastRows;
  if (made && wide && busy(kMostOfMade)) {
    // A thread waits for no element of its own, so parts are no more than keep multiprocessors busy.
    s.rows = 1;
    while (!busy(s.rows) && rows >= 2 * s.rows * std::int64_t{kLeastRows}) s.rows *= 2;
    return std::max(kWarp, kTileBlock / s.rows);
  }
  const std::int64_t of_part = f.in_parts ? 2 * kLeastRows : kLeastRows;
  if (!alone && !wide)  // of many such columns each has a warp or two
    while (s.rows * width > kWarp && rows < s.rows * of_part && busy(s.rows / 2)) s.rows /= 2;
  if (!alone && (rows >= std::int64_t{s.rows} * kLeastRows || !wide || !busy(1))) return width;
  if (!alone && rows >= kNarrow * kLeastRows) {
    s.rows = kNarrow;
    return kBlock / kNarrow;
  }
  s.rows = 1;
  if (f.states > 0 || vectors < 4 * kBlock) return 32;
  return alone ? kBlock / 2 : kBlock;  // what a thread has of few rows is soon done: a block's begin counts
}

/// Columns that are read more than once: a block keeps its columns in shared memory, fewer of them where that
/// is what has room, down to kHeldRun bytes of a row. Parts of a team have rows enough that their beginning
/// and coming together counts little: short columns have fewer parts, and a block more of them. `vectors` of
/// columns lie side by side.
void hold_columns(const Facts& f, const Target& t, std::int64_t reduced, std::int64_t vectors, int& width,
                  Schedule& s) {
  constexpr std::int64_t kOfPart = 4, kShort = 32 << 10;  // rows; bytes of a block's short columns
  constexpr int kLeastBlock = 64;
  constexpr std::int64_t kHeldRun = 64;  // bytes that are read as fast as longer runs
  constexpr int kWord = 4;               // accesses of fewer bytes take longer through shared memory
  if (f.held_bytes == 0 || s.lanes * f.held_bytes < kWord) return;
  const auto bytes = [&](int across) { return reduced * across * s.lanes * f.held_bytes; };
  // Two such blocks share a multiprocessor of 228 KiB; each has threads to keep loads in flight.
  const bool largest = t.architecture >= 90 && t.architecture < 120;
  const std::int64_t most = largest ? kMostColumns : held_bytes(t);
  int held = static_cast<int>(std::min<std::uint64_t>(static_cast<std::uint64_t>(width),
                                                      std::bit_ceil(static_cast<std::uint64_t>(vectors))));
  const auto shrink = [&](std::int64_t to, int element, std::int64_t run) {
    while (held > 1 && bytes(held) > to && std::int64_t{held} * s.lanes * element > run) held /= 2;
  };
  shrink(held_bytes(t), std::min(f.held_bytes, f.widest_bytes), largest ? 2 * kHeldRun : kHeldRun);
  shrink(most, f.widest_bytes, kHeldRun);  // of narrow elements half a run is better than none
  const bool whole = vectors <= held && !f.rows_apart && !f.in_parts;  // memory goes on with the next row
  if (bytes(held) > most || (!whole && std::int64_t{held} * s.lanes * f.widest_bytes < kHeldRun)) return;
  s.run = room_for(bytes(held));
  const bool large = s.run > held_bytes(t);
  const int block = large ? 2 * kBlock : kBlock;
  if (s.rows > 1 || held < 32) s.rows = std::min(s.rows * (width / held) * (block / kBlock), block / held);
  while (s.rows > 1 && reduced < kOfPart * s.rows && held * s.rows > kLeastBlock) {
    s.rows /= 2;
    if (2 * held > kWarp || 2 * held > vectors || bytes(2 * held) > kShort) continue;
    held *= 2;
    s.run = room_for(bytes(held));
  }
  width = held;
}

/// Results of pairs: a thread has those of several rows and of adjacent columns, so that it combines what it
/// loads several times. False where that leaves multiprocessors without work.
///
/// Columns that begin anywhere, or do not fill warps with vectors, are taken by strips of single elements.
/// The teams of a block have the same columns, of adjacent rows: the first cache has what all of them read.
/// Where that would leave threads without a column of their own, several tiles of rows share the lanes.
bool tile_results(const Facts& f, const Target& t, const Extents& e, Schedule& s) {
  const std::int64_t columns = f.axes.back().extent, kept = e.kept;
  const auto fills = [&](std::int64_t block) {  // hardly any lane idle
    return 10 * columns >= 9 * ceil_div(columns, block) * block;
  };
  const bool by_strips = s.lanes == 1 || columns < kWarp * s.lanes || !fills(kWarp * s.lanes);
  const int lanes = by_strips ? 1 : s.lanes;
  int strips = !by_strips ? 1 : f.widest_bytes > 4 ? kStrips / 2 : kStrips;
  const bool together = by_strips && !fills(kWarp * strips);
  const int least = e.reduced >= kManyCombined ? kNarrowStrip : kLeastStrip;
  while (together && strips > 1 && (columns < least * strips || !fills(strips))) strips /= 2;
  const int across = lanes * strips,
            tile = kTileResults / std::max(across, together && f.widest_bytes <= 4 ? 2 : 4);
  if (f.axes[static_cast<std::size_t>(f.apart)].extent < tile || columns < kNarrow || f.prims >= kLongBody ||
      kept < std::int64_t{t.threads} * kBlock * tile * across)
    return false;
  const int team = together ? kTileBlock : kWarp;
  s.lanes = lanes;
  s.strips = strips;
  s.kept_from = together ? 0 : -1;
  s.tile = tile;
  s.tile_axis = f.apart;
  s.threads = {kTileBlock, static_cast<std::uint16_t>(team)};
  s.block = std::int64_t{team} * (together ? 1 : across);
  return true;
}

/// Reductions of operands that are contiguous along different axes, the one across reduced: tiles of both
/// axes, whose elements of such operands go through shared memory. False where runs along either are short.
bool tile_reduction(const Facts& f, const Target& t, const Extents& e, Schedule& s) {
  constexpr std::int64_t kShared = 40 << 10, kElements = kTile * kTile, kMostRows = 256;
  if (!f.reduces_across || f.across_run < kShortTile || f.last_run < kTile / 2 || f.prims >= kLongBody)
    return false;
  const std::int64_t pad = std::max(1, kBank / f.across_narrowest);
  const auto fits = [&] { return s.run * (s.block + pad) * f.across_bytes <= kShared; };
  s.run_lanes = f.across_vector;
  s.together = true;
  s.steps = 1;
  if (e.last_reduced) {
    s.form = Form::Split;
    for (s.run = kShortTile; s.run < kTile && s.run < f.across_run;) s.run *= 2;
    for (s.block = kElements / s.run; !fits();) s.block /= 2;
    const std::int64_t tiles = e.reduced / (f.across_run * f.last_run) * ceil_div(f.across_run, s.run) *
                               ceil_div(f.last_run, s.block);
    if (tiles * e.kept < t.threads) return false;
    s.chunk = ceil_div(tiles, std::max<std::int64_t>(1, kWaves * 2 * t.threads / e.kept));
  } else {
    // Each tile leaves partial results, and runs of a line are read as fast by threads of their own.
    constexpr std::int64_t kLine = 128;       // bytes
    constexpr std::int64_t kMostTiles = 256;  // of a column: one block combines what they leave
    if (f.across_run * f.across_narrowest <= kLine || e.reduced < 2 * kShortTile) return false;
    s.form = Form::SplitColumns;
    s.block = kTile;
    s.lanes = column_lanes(f, s.lanes);
    const auto enough = [&] {  // tiles for all multiprocessors
      return e.kept / kTile * ceil_div(e.reduced, s.run) >= 2 * std::int64_t{t.threads};
    };
    for (s.run = kMostRows; s.run > kShortTile && (!fits() || s.run / 2 >= f.across_run || !enough());)
      s.run /= 2;
    if (!enough() || e.reduced > kMostTiles * s.run) return false;
    s.chunk = 1;
  }
  s.rows = static_cast<int>(std::max<std::int64_t>(1, kBlock * s.lanes / s.block));
  s.run_rows = static_cast<int>(std::max<std::int64_t>(1, kBlock * s.run_lanes / s.run));
  return true;
}

/// Columns of few elements, which a thread has alone: the loops down them are written out, and what they load
/// stays in registers for what is made of it. Few sizes: each is a kernel of its own. False where columns are
/// longer than that, or too few. (Those that are read once have enough loads in flight by themselves.)
bool write_out(const Facts& f, const Target& t, const Extents& e, bool cut, Schedule& s) {
  constexpr std::array kSizes{2, 3, 4, 6, 8, 12, 16, 24, 32};
  constexpr int kReadOnce = 12, kRegisters = 64;  // for loads
  const auto* const size = std::ranges::find_if(kSizes, [&](int n) { return n >= e.reduced; });
  const auto registers = [&](int lanes) {
    return *size * std::max({1, f.loads, lanes * f.loaded_bytes / kBank});
  };
  if (size == kSizes.end() || f.scans || f.states > 0 || f.levels > 1 || f.prims >= kLongBody ||
      (cut && e.reduced > kReadOnce) || (e.reduced_axes > 1 && !s.together))
    return false;
  int lanes = s.lanes;
  while (lanes > 1 && registers(lanes) > kRegisters) lanes /= 2;
  if (registers(lanes) > kRegisters || e.kept / lanes < std::int64_t{t.threads} * kBusy) return false;
  s.block = s.block / s.lanes * lanes;
  s.lanes = lanes;
  s.rows = 1;
  s.written_out = *size;
  return true;
}

/// Rows, or columns, so short that a thread reduces each of them alone. Of columns that are no vectors the
/// lanes have several rows' where one row's would leave many of them idle.
bool reduce_alone(const Facts& f, const Extents& e, Schedule& s) {
  const std::int64_t columns = f.axes.back().extent;
  const bool idle = s.lanes == 1 && 8 * columns <= 7 * ceil_div(columns, kWarp) * kWarp;
  const bool narrow = !e.last_reduced && ((columns < kNarrow && e.reduced <= kShortColumn) ||
                                          (idle && e.reduced <= kIdleColumn));
  const bool short_rows = e.last_reduced && e.reduced <= kShortRow;
  if (!(narrow || short_rows) || e.kept < kBlock || f.states > 0) return false;
  if (s.lanes > 1 && !e.last_reduced && joined_from(f, e, s.lanes) >= 0) return false;
  s.form = Form::Columns;
  s.kept_from = 0;
  s.lanes = s.steps = 1;
  s.block = kBlock;
  return true;
}

/// Few long rows: chunks of them, as many as keep all multiprocessors busy, and results that a second stage
/// combines. Where the outermost reduced axis has too few points for that, chunks are parts of all axes.
Schedule split_rows(const Facts& f, const Target& t, const Extents& e, Schedule s) {
  s.form = Form::Split;
  const std::int64_t want = std::max<std::int64_t>(1, kWaves * 2 * t.threads / e.kept);
  s.together = e.reduced_axes > 1 && (f.axes.back().extent < kBlock * f.vector || 2 * e.outermost < want);
  s.ragged = !s.together;
  if (s.ragged) s.lanes = f.vector;  // a chunk's last vector may be cut
  const std::int64_t outer = s.together ? e.reduced : e.outermost, inner = e.reduced / outer;
  // a chunk fills its block
  const std::int64_t least = std::max<std::int64_t>(1, kBlock * s.lanes * 4 / inner);
  s.chunk = std::max(ceil_div(outer, want), least);
  if (inner == 1) s.chunk = ceil_div(s.chunk, least) * least;
  return s;
}

/// Reductions along rows: a team has a row. `cut`: chunks of it may be combined in a second stage.
Schedule schedule_rows(const Facts& f, const Target& t, const Extents& e, bool cut, Schedule s) {
  const std::int64_t few = e.reduced >= kLong ? kWaves * t.threads : 2 * t.threads;
  const bool repeats = !f.stores_full && f.repeated >= 0 && e.reduced_axes == 1;
  if (repeats && e.kept >= few && tile_rows(f, t, e, s)) return s;
  if (repeats && cut && !f.whole_rows && split_tiles(f, t, e, s)) return s;
  if (cut && !f.whole_rows && e.kept < few && e.reduced >= kSplitAbove) return split_rows(f, t, e, s);
  if (repeats && tile_rows(f, t, e, s)) return s;
  s.form = Form::Rows;
  s.tile = 1;
  s.together = e.reduced_axes > 1;
  const Schedule whole = s;
  const std::int64_t row = begin_early(f, e, s);
  if (cut ? read_row(row, e.kept == 1, f, s) : hold_row(row, e.kept == 1, s.lanes, f, s)) return s;
  if (!cut && whole.lanes > 1 && s.early) s = whole;  // read again, pairs of elements are as fast
  // A block's threads take long to combine, parts twice as long: warps go further where they are many.
  const bool far = cut && s.lanes == 1 && e.reduced <= (f.in_parts ? 32 * 128 : 32 * 64) &&
                   e.kept >= t.threads * kBusy / 8;
  if (e.reduced <= 32 * 32 || far)
    s.threads = {128, 32};
  else if (!cut && f.states == 0)  // few rows are under way: the second cache has what is read again
    s.threads = {kMaxBlock, kMaxBlock};
  return s;
}

/// Reductions down columns: a team has adjacent columns, and its parts share the rows. `cut` as above.
Schedule schedule_columns(const Facts& f, const Target& t, const Extents& e, bool cut, Schedule s) {
  std::int64_t columns = f.axes.back().extent;
  s.form = Form::Columns;
  s.steps = 1;
  if (f.loaded_bytes == 0 && !f.jumps && cut && e.kept == columns) s.lanes = f.vector;  // the last may be cut
  if (f.apart >= 0 && cut && tile_results(f, t, e, s)) return s;
  s.together = e.reduced_axes > 1 && f.states == 0;
  const int whole_lanes = s.lanes;
  s.lanes = column_lanes(f, s.lanes);
  s.kept_from = joined_from(f, e, s.lanes);
  for (int g = static_cast<int>(f.axes.size()) - 1; s.kept_from >= 0 && g-- > s.kept_from;)
    if (const Facts::Axis& a = f.axes[static_cast<std::size_t>(g)]; !a.reduced) columns *= a.extent;
  const std::int64_t outer = s.together ? e.reduced : e.outermost;
  int width = share_rows(f, t, ceil_div(columns, s.lanes), e.kept / columns, outer, whole_lanes / s.lanes, s);
  // No lane is idle so; but small blocks are too few at a time for all multiprocessors.
  if (s.kept_from >= 0 && s.rows == 1 && e.kept / s.lanes >= std::int64_t{t.threads} * kBusy) width = kBlock;
  constexpr int kAlone = 128;  // threads of a block that share nothing
  if (write_out(f, t, e, cut, s))
    width = s.kept_from >= 0 || columns >= 4 * kAlone * s.lanes ? kAlone : kWarp;
  else if (!cut && f.states == 0)
    hold_columns(f, t, e.reduced, ceil_div(columns, s.lanes), width, s);
  const int block = width * s.rows;
  s.threads = {static_cast<std::uint16_t>(block), static_cast<std::uint16_t>(block)};
  s.block = width * s.lanes;
  const std::int64_t items = e.kept / columns * ceil_div(columns, s.block);
  const std::int64_t wanted = kWaves * (narrow_accesses(f, s.lanes) ? 2 : 1) * t.threads * (kBlock / block);
  if (cut && !f.whole_rows && items < wanted / 2 && e.reduced >= 64) {
    s.form = Form::SplitColumns;
    const std::int64_t chunks = std::max<std::int64_t>(1, wanted / items);  // all resident together
    s.chunk = std::max<std::int64_t>(ceil_div(outer, chunks),
                                     std::max<std::int64_t>(s.rows, 16 * outer / e.reduced));
    // A block costs as much as kLeastRows of a part's rows: fewer blocks, if each multiprocessor has one.
    s.chunk = std::max(s.chunk, std::min(s.rows * std::int64_t{kLeastRows}, outer * items / t.threads));
  }
  return s;
}

}  // namespace

std::int64_t begin_early(const Facts& f, const Extents& e, Schedule& s) {
  constexpr std::int64_t kLeastVectors = 16, kManyVectors = 64;
  const std::int64_t vectors = ceil_div(e.reduced + f.row_vector - 1, f.row_vector),
                     places = ceil_div(vectors, kWarp) * kWarp;
  const bool fills = vectors >= kManyVectors || (vectors >= kLeastVectors && 5 * vectors >= 3 * places),
             wider = f.row_vector > s.lanes && e.reduced % f.row_vector != 0,
             simple = f.scans || (f.prims < kLongBody && !f.in_parts),
             early = fills && wider && simple && f.states == 0 && f.levels == 1;
  for (int lanes = f.row_vector; lanes > s.lanes && 2 * lanes >= f.row_vector; lanes /= 2)
    if (e.reduced_axes > 1 && f.states == 0 && f.levels == 1 && e.reduced % lanes == 0) {
      s.lanes = lanes;
      return e.reduced;
    }
  if (!early) return e.reduced;
  s.lanes = f.row_vector;
  s.ragged = s.early = true;
  return e.reduced + s.lanes - 1;
}

std::variant<Schedule, std::string> schedule_gpu(const Facts& given, const Target& t) {
  Facts f = given;
  if (f.states > 0) f.vector = 1;  // a loop is one element's own
  Schedule s;
  s.lane_axis = static_cast<int>(f.axes.size()) - 1;
  s.threads = {kBlock, kBlock};
  s.lanes = f.axes.back().extent % f.vector == 0 ? f.vector : 1;
  const Extents e = extents_of(f);
  if (f.scans) return schedule_scan(f, t, e, s);
  if (f.phases == 0) return schedule_map(f, t, s, e.kept);
  if (f.both_ways) return schedule_both_ways(f, t, e, s);
  const bool cut = f.phases == 1 && !f.stores_full;  // may be combined in a second stage
  if (Schedule tiled = s; cut && !f.whole_rows && tile_reduction(f, t, e, tiled)) return tiled;
  if (bunch_rows(f, t, s)) return s;
  if (Schedule grouped = s; group_columns(f, t, e, cut, grouped)) return grouped;
  if (reduce_alone(f, e, s)) {
    if (!e.last_reduced) write_out(f, t, e, cut, s);
    return s;
  }
  return e.last_reduced ? schedule_rows(f, t, e, cut, s) : schedule_columns(f, t, e, cut, s);
}

std::int64_t rows_under_way(const Facts& f, const Target& t, const Schedule& s) {
  constexpr std::int64_t kBlocks = 2;  // of so many threads on a multiprocessor
  if (s.form == Form::Chain) return 1024 / s.threads.block * t.threads;
  // One block has too few loads of halves in flight.
  const bool wide = f.loaded_bytes >= kBank * f.loads;
  if (s.form != Form::Rows || s.threads.team != kMaxBlock || s.steps > 0 || !wide || !f.stores_full ||
      f.states > 0)
    return 0;
  std::int64_t row = f.loaded_bytes;
  for (const Facts::Axis& a : f.axes) row *= a.reduced ? a.extent : 1;
  return 4 * kBlocks * row > 3 * t.l2_bytes ? t.threads : 0;
}

}  // namespace kiln::schedule
