// Reductions along different axes of values that no block of a GPU holds, by one reading: a block has columns
// and goes down a chunk of them, and the values of each row come together across the lanes meanwhile.
#include "schedule/schedule_gpu.h"

#include <algorithm>

namespace kiln::schedule {

bool both_ways_pay(const BothWays& f, const Target& t) {
  constexpr std::int64_t kLeastRun = 24;      // elements that lanes share
  constexpr std::int64_t kLeastReduced = 16;  // down a column, or a block would store as much as it reads
  constexpr std::int64_t kAcross = 64;        // elements of which a partial result is left, along rows …
  constexpr double kPart = 8;                 // … whose bytes are written and read
  if (!t.gpu || t.strict || f.run < kLeastRun || f.reduced < kLeastReduced) return false;
  // Lanes that have an element or two each of halves come together as often as those that have vectors.
  if (f.bytes < 4 && f.run * f.bytes % 16 != 0) return false;
  const auto time = [&](const NestFacts::Kernel& k) {
    return t.launch_ns + std::max(k.prims / t.prims_per_ns, t.traffic_ns(k.bytes));
  };
  const double points = static_cast<double>(f.columns * f.reduced);
  NestFacts::Kernel one = f.together;
  one.bytes += kPart * f.reductions * points / static_cast<double>(std::min(f.run, kAcross));
  return time(one) + t.launch_ns <= time(f.apart[0]) + time(f.apart[1]);
}

/// Reductions down columns, while values of rows come together across the threads of a part, a warp at most.
/// So columns are wide, and parts of a team go down long chunks: both leave few partial results. Short
/// columns are a warp's.
Schedule schedule_both_ways(const Facts& f, const Target& t, const Extents& e, Schedule s) {
  constexpr int kBlocks = 16;                // of a multiprocessor
  constexpr std::int64_t kShortColumn = 96;  // elements, for which parts would hardly begin
  const std::int64_t columns = f.axes.back().extent;
  s.form = Form::SplitColumns;
  s.steps = 1;
  s.together = e.reduced_axes > 1;
  s.lanes = column_lanes(f, s.lanes);
  int width = kNarrow;
  while (width < kWarp && width * s.lanes < columns) width *= 2;
  s.block = std::int64_t{width} * s.lanes;
  const std::int64_t outer = s.together ? e.reduced : e.outermost,
                     items = e.kept / columns * ceil_div(columns, s.block);
  if (e.reduced <= kShortColumn && items >= std::int64_t{kBlocks} * t.threads) {
    s.threads = {kBlock, static_cast<std::uint16_t>(width)};
    s.chunk = outer;
    return s;
  }
  s.rows = kBlock / width;
  const std::int64_t chunks = std::max<std::int64_t>(1, std::int64_t{kBlocks} * t.threads / items);
  s.chunk = std::max(ceil_div(outer, chunks), std::min(outer, std::int64_t{s.rows} * kLeastRows));
  return s;
}

}  // namespace kiln::schedule
