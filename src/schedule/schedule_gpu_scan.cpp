// Schedules for a GPU: long scans in chunks (Form::Chain). A warp holds a chunk in registers; a block's warps
// have chunks that follow each other, down the same columns where the scanned axis is not the last.
#include "schedule/schedule_gpu.h"
#include "support/scan_tiles.h"

#include <algorithm>

namespace kiln::schedule {
namespace {

constexpr std::int64_t kLeastChain = 16384;  // elements of a row that is cut into chunks
constexpr int kChains = 6;                   // rows for each multiprocessor, fewer of which are cut so, …
constexpr int kChainsByElements = 3, kChainsOfParts = 2;  // … by single elements, or of values in parts
constexpr int kChunkSteps = 8, kChunkElements = 16;       // of a thread: vectors, or elements one by one
constexpr int kChunkRegisters = 32;                       // of a thread for elements of its columns
constexpr int kMostRows = 32, kLeastRows = 4;             // of a thread's columns
constexpr int kMostColumns = 4;  // of a thread: each has totals, and those of 15 other warps beside them,
                                 // in shared memory
constexpr std::int64_t kLongRows = 1 << 18;  // elements
constexpr int kThreads = 512;                // of a block of longer rows, or of columns: its turns are fewer

/// Columns are cut where each thread's own would be too few threads.
bool chain_columns(const Facts& f, const Target& t, const Extents& e, Schedule& s) {
  const std::int64_t across = f.axes.back().extent;
  const int lanes = lanes_of_tile(across, std::min(s.lanes, kMostColumns));
  // Chunks of a logcumsumexp take as long for their totals as for their scans.
  const bool busy = f.kept > 0 ? e.kept >= kFewScansOfParts * t.threads
                               : e.kept / s.lanes >= std::int64_t{kBusy} * t.threads;
  if (lanes == 0 || busy || e.reduced < kLeastChainedRows) return false;
  s.form = Form::Chain;
  s.lanes = lanes;
  s.steps = 1;
  s.block = std::int64_t{32} * lanes;
  const int registers = std::max(lanes * std::max(f.loaded_bytes, 1) / 4, 1);
  s.written_out = std::clamp(kChunkRegisters / registers, kLeastRows, kMostRows);
  s.chunk = s.written_out;
  s.threads = {kThreads, 32};
  return true;
}

}  // namespace

bool chain(const Facts& f, const Target& t, const Extents& e, Schedule& s) {
  if (f.phases > 0 || f.scans_of_scans || e.reduced_axes != 1) return false;
  if (!e.last_reduced) return chain_columns(f, t, e, s);
  Schedule early = s;
  begin_early(f, e, early);
  const int chains = f.kept > 0 ? kChainsOfParts : early.lanes > 1 ? kChains : kChainsByElements;
  if (e.kept >= std::int64_t{chains} * t.threads || e.reduced <= kLeastChain) return false;
  s = early;
  s.form = Form::Chain;
  s.threads = {static_cast<std::uint16_t>(e.reduced >= kLongRows ? kThreads : kBlock), 32};
  s.steps = s.lanes > 1 ? kChunkSteps : kChunkElements;
  s.chunk = std::int64_t{32} * s.lanes * s.steps;
  return true;
}

}  // namespace kiln::schedule
