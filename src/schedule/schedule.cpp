#include "schedule/extents.h"
#include "support/check.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kiln::schedule {
namespace {

constexpr std::int64_t kFlatBlock = 4096;  // elements: enough to hide the loop's start, few enough to balance
constexpr std::int64_t kLoopBlock = 1024;  // the same where each element runs a loop
constexpr std::int64_t kSplitAbove = 16384;  // shorter reductions are not worth a second stage
constexpr std::int64_t kMinChunk = 4096;
constexpr std::int64_t kLeastFolds = 4;   // times that each lane is used, at least
constexpr std::int64_t kNearItem = 4;     // quarters of the second cache: an item that is not cut into chunks
constexpr std::int64_t kLeastBlock = 16;  // points of a folded axis in a block of an item that is not near
constexpr std::int64_t kMostFilled = 8;   // vectors that share the points of a folded axis
constexpr std::int64_t kMostRound = 1024;  // elements: what a thread reads in many rounds stays in its caches
constexpr std::int64_t kLeastRounds = 8;   // that make up for the first
constexpr std::int64_t kRoundsBlock = 4096;      // elements of them at least, else …
constexpr std::int64_t kManyRounds = 64;         // … so many rounds, of as many bytes:
constexpr std::int64_t kRoundsBytes = 64 << 10;  // in few pages; what is found once counts for little
constexpr std::int64_t kRowsInside = 32;         // that make up for what is found once for all
constexpr std::int64_t kRowsOfIndex = 8;         // the same of rows of any length that share an index, and …
constexpr std::int64_t kMostOfIndex = 64;        // … of those that the second cache has room for
constexpr std::int64_t kRoundsOfIndex = 32;      // rounds that make up for places found by an index
constexpr std::int64_t kGatheredRow = 2;         // elements of a row by an index of its own: gathered
constexpr std::int64_t kShortRow = 128;          // elements of a row that is not worth a grid item
constexpr int kFewOperands = 6;                  // that guards choose from along such a row
constexpr std::int64_t kGuardedRow = 512;        // the same where guards cut it, or its elements lie apart
constexpr std::int64_t kJoinedBytes = 64 << 10;  // the same of several axes that share the lanes
constexpr int kLongBody = 20;                    // primitives; of a map: for each operand and result
constexpr int kShortBody = 6;                    // likewise: memory is slower than they are
constexpr int kSlowToCompile = 64;  // primitives that take 15 ms to compile with four registers side by side
constexpr int kLongAnyway = 100;    // primitives that take as long with one
constexpr int kFewStates = 4;  // of a loop, whose iterations wait for each other: four registers side by side
constexpr std::int64_t kLeastTile = 4;  // elements each way
constexpr std::int64_t kMostTile = 128;
constexpr std::int64_t kTileBytes = 32 << 10;  // of all tiles of a grid item: the most of a first-level cache
constexpr int kPiece = 16;                     // bytes of a tile's row that are written at once
constexpr int kPairBody = 12;                  // primitives that leave registers for 16 results of pairs
constexpr std::int64_t kTilesAThread = 32;     // of results of pairs, so that threads end together
constexpr int kLeastLanes = 4;                 // lanes that write a tile
constexpr int kLine = 64;                      // bytes of a store that goes past the caches as one
constexpr int kFewByElement = 2;  // guarded operands of which a line's elements are loaded one by one
constexpr std::int64_t kStripeAbove = 20;    // reduced elements from which columns are read row by row, …
constexpr std::int64_t kLongStripe = 32;     // … or scanned, or where what ends a column takes longer
constexpr int kKeptInStripes = 2;            // registers that the reductions of a column take, at most
constexpr std::int64_t kManyColumns = 4096;  // points of kept axes that share the lanes: enough
constexpr std::int64_t kChainChunk = 32768;  // elements of a scan, read twice: within the second cache
constexpr std::int64_t kShortSlab = 16;      // elements behind a lane of a bunch: few
constexpr std::int64_t kSlabsBunch = 64, kShortSlabsBunch = 256;  // lanes of a grid item
constexpr std::int64_t kBunchBytes = 96 << 10;  // of all tiles of such an item: little of the second cache
constexpr std::int64_t kMostBatch = 64;         // rows
constexpr std::int64_t kStepsOfScan = 4;        // of a scan along lanes
// Instructions that combine the lanes of a row and begin the next: of values, of each part of those that have
// two, and what a logsumexp takes besides that reads its row twice: another value and a logarithm.
constexpr std::int64_t kCombineValues = 8, kCombineParts = 40, kCombineTwice = 28;
// The same of a register of lanes that reads its elements twice: an element, the end of its points, which is
// there once more where the last of them do not fill the lanes, and what combines it with another.
constexpr std::int64_t kTwiceElement = 14, kTwiceEnd = 60, kTwiceCombine = 45;
constexpr std::int64_t kRowEnds = 15;  // what a row of its own waits for before its results are made

/// Reductions wait for loads and adds: several registers side by side hide the latency.
int widen(int lanes, int prims) { return prims <= 6 ? lanes * 4 : lanes * 2; }

/// The primitives of a long body wait for each other; a shorter one's operands come from memory no faster
/// than it needs them. The many operands of a stencil are in the caches, and their sum waits for each of
/// them.
int registers_of_map(const Facts& f) {
  if (f.prims <= 3 || f.random) return 2;
  if (f.prims >= kLongAnyway) return 4;
  if (f.prims <= kLongBody * (f.loads + 1)) return f.guarded && f.loads > kFewOperands ? 2 : 1;
  return f.prims <= kSlowToCompile ? 4 : 2;
}

/// Whether a second stage may combine the results of a reduction's chunks.
bool may_split(const Facts& f) { return f.phases == 1 && !f.stores_full; }

/// Elements a chunk when an axis is cut into about `want` chunks.
std::int64_t chunk_of(std::int64_t extent, std::int64_t want) {
  want = std::clamp<std::int64_t>(want, 1, extent);
  return (extent + want - 1) / want;
}

/// Elements each way of square tiles, one for each operand, whose elements have `bytes` bytes together. It
/// depends on nothing else: it is part of a kernel's identity.
std::int64_t tile_side(int bytes) {
  std::int64_t side = kMostTile;
  while (side > 32 && side * side * bytes > kTileBytes) side /= 2;
  return side;
}

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

/// Whether lanes along so few elements are idle for more than a quarter of them.
bool leaves_idle(std::int64_t elements, int lanes) {
  return elements < 3 * lanes && 4 * elements < 3 * round_up(elements, lanes);
}

/// As many lanes as make a line of memory of the narrowest result; elements that lie apart would be in too
/// many registers, and LLVM takes seconds to schedule two registers of bytes that are loaded one by one where
/// guards say so.
int lanes_of_line(const Facts& f, const Target& t, int lanes) {
  const bool one_by_one = f.guarded && f.loads > kFewByElement && f.out_narrowest == 1 && t.vector_bytes < 64;
  return f.dense && !one_by_one ? std::clamp(kLine / f.out_narrowest, lanes, 4 * lanes) : lanes;
}

/// Short rows that share the lanes come round to the beginning of a vector again. What such a round's
/// elements read follows from their place in it: it is found once for many rounds. The rounds are along the
/// innermost axis that has `many` of them, of as many lanes as make a line or, where that makes too long
/// rounds, down to `least` of them.
bool find_round(const Facts& f, const Target& t, int least, std::int64_t many, Schedule& s) {
  std::int64_t period = 1;
  for (auto axis = static_cast<int>(f.axes.size()) - 1; axis-- > 0;) {
    const std::int64_t extent = f.axes[static_cast<std::size_t>(axis)].extent;
    period *= f.axes[static_cast<std::size_t>(axis) + 1].extent;
    int lanes = lanes_of_line(f, t, least);
    const std::int64_t most = f.jumps ? 2 * kMostRound : kMostRound;
    while (lanes > least && std::lcm<std::int64_t>(period, lanes) > most) lanes /= 2;
    const std::int64_t round = std::lcm<std::int64_t>(period, lanes);
    if (round > most) return false;
    const bool found_again = f.jumps && f.jumps_along > 0;  // for many rounds
    if (extent < many * round / period || (found_again && axis >= f.jumps_along)) continue;
    s.lane_axis = axis;
    s.round = round;
    s.lanes = lanes;
    const std::int64_t elements = std::min(kManyRounds * round, kRoundsBytes / f.widest_bytes),
                       least_rounds = f.jumps ? kRoundsOfIndex : kLeastRounds;
    s.block = std::max(least_rounds, std::max(kRoundsBlock, elements) / round) * round;
    // Lines are written one by one, each at a multiple of its size.
    s.stream = goes_past(f, t, f.adjoining_bytes) && lanes * f.out_narrowest >= kLine &&
               (axis == 0 || period * extent * f.out_narrowest % kLine == 0);
    return true;
  }
  return false;
}

/// Puts the loops over rows, those of the axes from lane_axis on as one, inside that over the vectors of a
/// row: which lanes a guard leaves on and where the elements of a vector are is then found once for many
/// rows, and short rows are no grid items of their own.
bool put_rows_inside(const Facts& f, const Target& t, int lanes, std::int64_t row, Schedule& s) {
  int axis = s.lane_axis;
  std::int64_t rows = 1;
  while (axis > 0 && rows < kRowsInside) rows *= f.axes[static_cast<std::size_t>(--axis)].extent;
  if (rows < kLeastRounds) return false;
  const std::int64_t front = f.axes[static_cast<std::size_t>(axis)].extent;
  s.inside = axis;
  std::int64_t elements = kRoundsBlock;
  if (f.jumps || row > kGuardedRow)
    elements = std::max(
        elements, row * std::clamp(t.l2_bytes / 4 / (row * f.widest_bytes), kRowsOfIndex, kMostOfIndex));
  s.block = std::clamp<std::int64_t>(elements * front / (rows * row), 1, front);
  // An item of all rows that indices choose from asks for those of the next.
  std::int64_t outer = 1;
  for (int a = 0; a < axis; ++a) outer *= f.axes[static_cast<std::size_t>(a)].extent;
  if (f.jumps && f.jumps_along >= axis && rows * row * f.widest_bytes <= t.l2_bytes / 2 &&
      outer >= kLeastRounds * t.threads)
    s.block = front;
  s.lanes = lanes;
  const int wide = lanes_of_line(f, t, lanes);
  const bool no_more_idle = row >= wide && round_up(row, wide) == round_up(row, lanes);
  if (f.jumps || no_more_idle || row >= 4 * wide) s.lanes = wide;
  // Each vector of a row looks up where the row is: as few as lines allow, and of these the shortest.
  const auto vectors = [&](int of) { return (row + of - 1) / of; };
  while (f.jumps && s.lanes > kLeastLanes && vectors(s.lanes / 2) == vectors(s.lanes)) s.lanes /= 2;
  s.stream = goes_past(f, t, f.adjoining_bytes) && row * f.out_narrowest % kLine == 0 &&
             s.lanes * f.out_narrowest >= kLine;
  // Past the caches by pairs of lines: half as many rounds through an item's rows.
  if (s.stream && s.lanes * f.out_narrowest == kLine && row % (2 * s.lanes) == 0) s.lanes *= 2;
  const bool masks = t.vector_bytes >= 64 || f.out_narrowest >= 4;  // loads of a part of a vector
  if (!masks && f.guards_apart > 0 && f.guards_apart % lanes == 0) {
    while (f.guards_apart % s.lanes != 0) s.lanes /= 2;
    s.stream = s.stream && s.lanes * f.out_narrowest >= kLine;
  }
  return true;
}

/// Rows of a map whose elements are where indices say that are the same for many rows: short rows share the
/// lanes, and of rows of any length the places of a vector's elements are found once.
bool find_indexed_rows(const Facts& f, const Target& t, int lanes, Schedule& s) {
  const std::int64_t row = f.axes.back().extent;
  const bool shared = row < 2 * lanes;
  if (shared && (find_round(f, t, lanes, kRowsInside, s) || find_round(f, t, lanes, kLeastRounds, s)))
    return true;
  if (f.jumps_along < s.lane_axis && row > kShortRow) return false;
  const bool near = kRowsOfIndex * row * f.widest_bytes <= t.l2_bytes / 2;
  return near && row >= kLeastLanes && put_rows_inside(f, t, lanes, row, s);
}

/// Whether short rows take fewer instructions with lanes of their own, some of them idle, than sharing the
/// lanes, where each operand's elements are permuted out of one or two registers.
bool apart_is_shorter(const Facts& f, std::int64_t row, int lanes) {
  constexpr std::int64_t kPermute = 6, kMaskedStore = 12;
  const std::int64_t shared = kPermute * f.loads + f.prims, apart = f.prims + kMaskedStore;
  return row >= lanes && !f.strided && round_up(row, lanes) * apart < row * shared;
}

/// Rows of a map that are too short for a loop of their own.
bool find_short_rows(const Facts& f, const Target& t, int lanes, Schedule& s) {
  const auto last = static_cast<int>(f.axes.size()) - 1;
  std::int64_t row = f.axes[static_cast<std::size_t>(last)].extent;
  if (!f.rows_alone && last > 0 && f.states == 0 && f.jumps && f.jumps_along > 0)
    if (find_indexed_rows(f, t, lanes, s)) return true;
  const bool cut = f.guarded && f.loads <= kFewOperands;
  const std::int64_t longest = cut || f.strided ? kGuardedRow : kShortRow;
  if (f.rows_alone || last == 0 || f.states > 0 || row > longest) return false;
  const auto apart = [&] { return put_rows_inside(f, t, lanes, row, s); };
  if (f.jumps && f.jumps_along == 0 && row == kGatheredRow && find_round(f, t, lanes, kRowsInside, s))
    return true;
  if (f.jumps && row > 1) return apart();
  // Axes whose elements follow each other share the lanes; vectors that go on far away would be gathered.
  while (!f.jumps && row < lanes && s.lane_axis > f.near)
    row *= f.axes[static_cast<std::size_t>(--s.lane_axis)].extent;
  const bool wasted = 4 * row < 3 * round_up(row, lanes), far = s.lane_axis == f.near && f.near > 0,
             long_body = f.prims > kShortBody * (f.loads + 1);
  if (far && 2 * row >= lanes && row <= longest && !(wasted && long_body) && apart()) return true;
  s.lane_axis = last;
  row = f.axes[static_cast<std::size_t>(last)].extent;
  const bool shared = row < lanes || (4 * row < 3 * round_up(row, lanes) && (row < 2 * lanes || long_body));
  if (shared && apart_is_shorter(f, row, lanes) && apart()) return true;
  if (shared && (find_round(f, t, lanes, kRowsInside, s) || find_round(f, t, lanes, kLeastRounds, s)))
    return true;
  while (row < lanes && s.lane_axis > 1) row *= f.axes[static_cast<std::size_t>(--s.lane_axis)].extent;
  // Of axes that share the lanes, what a guard of the inner ones leaves on would be found for each vector.
  const bool joined = s.lane_axis < last;
  if (row >= lanes && row <= (joined ? kJoinedBytes / f.widest_bytes : kGuardedRow) && apart()) return true;
  s.lane_axis = last;
  return false;
}

/// How many runs of `inside` elements side by side use most of the lanes of their vectors: as few as fill one
/// and leave no more than an eighth idle, or of so many as `most` those that leave the fewest.
std::int64_t fill_vectors(std::int64_t inside, int lanes, std::int64_t most) {
  const std::int64_t least = std::max<std::int64_t>(1, lanes / inside);
  const auto used = [&](std::int64_t n) {
    return static_cast<double>(n * inside) / static_cast<double>(round_up(n * inside, lanes));
  };
  std::int64_t best = least;
  for (std::int64_t n = least; n <= std::min(most, kMostFilled * least) && used(best) < 7.0 / 8; ++n)
    if (used(n) > used(best)) best = n;
  return best;
}

/// Whether columns whose elements are read twice take fewer instructions with some lanes idle than with
/// `fold` points side by side, whose values are combined at the end. Few points do not make up for that.
bool ends_take_longer(std::int64_t points, std::int64_t inside, std::int64_t fold, int lanes) {
  const std::int64_t column = ceil_div(inside, lanes), side = ceil_div(fold * inside, lanes),
                     rest = ceil_div(points % fold * inside, lanes);
  const std::int64_t apart = column * (points * kTwiceElement + kTwiceEnd);
  return apart < (points / fold * side + rest) * kTwiceElement + (side + rest) * kTwiceEnd +
                     fold * column * kTwiceCombine;
}

/// Points of the axis `folds` that share the lanes with the axes inside it, in the schedule: where lanes
/// along these axes alone would be idle, and where enough points are left to make up for combining the lanes.
bool find_fold(const Facts& f, const Target& t, int lanes, const Extents& e, Schedule& s) {
  if (f.folds < 0 || f.rows_alone) return false;
  std::int64_t inside = 1, kept_inside = 1;
  for (auto a = static_cast<std::size_t>(f.folds) + 1; a < f.axes.size(); ++a)
    inside *= f.axes[a].extent, kept_inside *= f.axes[a].reduced ? 1 : f.axes[a].extent;
  const std::int64_t points = f.axes[static_cast<std::size_t>(f.folds)].extent, last = f.axes.back().extent;
  const std::int64_t items = e.kept / kept_inside, slab = e.kept * e.reduced / items * f.loaded_bytes;
  // Parts of lines that lie apart: not all of these lines stay in a cache until the other parts are read. Nor
  // do lines that are read again, of which a cache has few if they lie apart, if it has no room for the slab.
  const bool idle =
      last < (e.last_reduced ? 2 : 1) * lanes || leaves_idle(last, lanes) ||
      (e.last_reduced && f.stores_full && last * f.out_narrowest < (slab > t.l2_bytes ? 2 : 1) * kLine);
  if (inside > kMostFolded || !idle) return false;
  s.form = Form::Columns;
  s.lane_axis = f.folds + 1;
  s.stream = false;
  s.lanes = f.in_parts ? lanes : widen(lanes, f.prims);
  while (s.lanes > lanes && points < kLeastFolds * (s.lanes / inside)) s.lanes /= 2;
  s.fold = fill_vectors(inside, s.lanes, points / kLeastFolds);
  if (points < kLeastFolds * s.fold) return false;
  if (f.read_twice > 0 && kept_inside == inside && ends_take_longer(points, inside, s.fold, lanes))
    return false;
  // Each vector of lanes walks all points of an item, or of a chunk: they stay in the second cache.
  const std::int64_t near = ceil_div(slab, t.l2_bytes / 4);
  const bool enough = items >= t.threads || e.kept * e.reduced <= kSmallWork;
  if (enough && (near <= kNearItem || !may_split(f))) {
    if (near > 1 && s.fold * inside > s.lanes)
      s.block = std::max<std::int64_t>(kLeastBlock, t.l2_bytes / 8 / (s.fold * inside * f.loaded_bytes));
    return true;
  }
  if (!may_split(f)) return false;
  s.chunk = chunk_of(e.outermost, std::max<std::int64_t>(enough ? 1 : 8 * t.threads, near));
  return e.outermost != points || s.chunk >= kLeastFolds * s.fold;
}

/// Rows that are too short for lanes of their own: a lane has a row, or some beside each other, and elements
/// are turned on the way to scratch memory and back (Form::Bunch). Counted in instructions of a slab.
bool bunch_rows(const Facts& f, const Target& t, int lanes, Schedule& s) {
  if (f.bunch_bytes == 0 || f.states > 0 || f.rows_alone) return false;
  std::int64_t slabs = 1, rows = 1, reduced = 1, results = f.stores_full || f.scans ? 1 : 0;
  for (const auto& a : f.axes) (a.reduced ? reduced : reduced > 1 ? rows : slabs) *= a.extent;
  const std::int64_t slab = rows * reduced, last = f.axes.back().extent, vectors = (last + lanes - 1) / lanes;
  if (slab > kMostSlab || slab * kSlabsBunch * f.bunch_bytes > kBunchBytes) return false;
  if (slabs < 2 * t.threads * kShortSlabsBunch) return false;
  const bool last_reduced = f.axes.back().reduced;
  // Elements of two registers are permuted where they are.
  if (t.vector_bytes >= 64 && rows == 1 && results == 0 && slab * lanes * f.bunch_bytes <= 128) return false;
  // What a scan costs has the steps along lanes in it, of which a lane of its own needs one.
  const std::int64_t steps = f.scans ? kStepsOfScan : 1,
                     combine = f.phases * (f.in_parts ? 2 * kCombineParts : kCombineValues) +
                               f.read_twice * kCombineTwice + f.row_prims + combine_positions(f, t, lanes),
                     prims = std::max(0, f.prims - f.row_prims), ends = results > 0 ? kRowEnds : 0,
                     alone =
                         slab / last * (vectors * prims + (last_reduced && !f.scans ? combine + ends : 0)),
                     turned = (slab * prims + rows * f.row_prims) / (steps * lanes) +
                              slab * (f.bunch_operands + results);
  // Of reductions rows that fit on the lanes would be gathered otherwise, one for each lane.
  if (alone <= turned && (f.scans || last > lanes)) return false;
  s.form = Form::Bunch;
  s.lanes = f.scans && f.prims >= kLongAnyway ? 2 * lanes : lanes;  // a step waits for the one before
  s.lane_axis = 0;
  s.stream = false;
  s.block = slab <= kShortSlab ? kShortSlabsBunch : kSlabsBunch;
  s.run_rows = slab < 4 ? 2 : slab < 2 * f.bunch_vector || f.bunch_vector < 8 ? 4 : 8;
  s.run_lanes = s.run_rows;
  return true;
}

/// Rows of a map with lanes of their own, of which vectors of several registers would leave many idle: a body
/// that takes longer than its operands from memory has fewer.
void use_lanes(const Facts& f, int lanes, Schedule& s) {
  const auto last = static_cast<int>(f.axes.size()) - 1;
  const std::int64_t row = f.axes[last].extent;
  if (f.states > 0 || f.prims <= kShortBody * (f.loads + 1) || 4 * row > 3 * round_up(row, s.lanes)) return;
  while (s.lanes > lanes && 4 * row <= 3 * round_up(row, s.lanes)) s.lanes /= 2;
}

/// The kept axis that is better on lanes than few last columns, whose scan takes longer than gathering what
/// it reads; -1: there is none.
int axis_of_lanes(const Facts& f, const Target& t, int lanes, std::int64_t kept) {
  if (f.prims < kLongAnyway || 2 * f.axes.back().extent > lanes) return -1;
  int found = -1;
  for (int a = 0; a + 1 < static_cast<int>(f.axes.size()); ++a) {
    const std::int64_t extent = f.axes[static_cast<std::size_t>(a)].extent;
    if (f.axes[static_cast<std::size_t>(a)].reduced || extent < lanes || kept / lanes < t.threads) continue;
    if (found < 0 || f.axes[static_cast<std::size_t>(found)].extent < extent) found = a;
  }
  return found;
}

/// Scans go along their axes in order: an axis on lanes is one register at a time.
Schedule schedule_scan(const Facts& f, const Target& t, const Extents& e, Schedule s) {
  const int lanes = base_lanes(f, t);
  if (bunch_rows(f, t, lanes, s)) return s;
  const std::int64_t last = f.axes.back().extent;
  if (!e.last_reduced) {
    if (const int axis = axis_of_lanes(f, t, lanes, e.kept); axis >= 0) {
      s.form = Form::Columns;
      s.lanes = lanes;
      s.block = lanes;
      s.lane_axis = axis;
      s.stream = false;
      return s;
    }
    s.lanes = last >= 4 * lanes ? widen(lanes, f.prims) : lanes;
    if (f.prims >= kLongAnyway && last >= 16 * lanes) s.lanes = 4 * lanes;  // a step waits for the one before
    const bool stripes =
        last >= 4 * lanes && e.reduced >= kLongStripe && e.reduced * e.kept > kSmallWork && !f.in_parts;
    s.form = stripes ? Form::Stripes : Form::Columns;
    s.block = s.form == Form::Columns ? s.lanes : stripe_of(last, e.kept / last, t);
    return s;
  }
  s.lanes = lanes;
  s.form = f.phases == 0 && !f.scans_of_scans && e.kept < t.threads && e.reduced > kSmallWork ? Form::Chain
                                                                                              : Form::Rows;
  if (s.form == Form::Chain) s.chunk = std::max<std::int64_t>(1, kChainChunk * e.outermost / e.reduced);
  return s;
}

/// Results of pairs: a tile of rows and columns, whose accumulators stay in registers. Few columns leave room
/// for more rows. A grid item goes along several tiles where there are enough for all threads, but no further
/// than the second cache has their columns for the item of the next rows.
Schedule schedule_pairs(const Facts& f, const Target& t, Schedule s, const Extents& e) {
  const std::int64_t columns = f.axes.back().extent, rows = f.axes[static_cast<std::size_t>(f.apart)].extent;
  s.form = Form::Columns;
  s.lanes = pair_lanes(f, t);
  s.tile = kPairRows;
  s.tile_axis = f.apart;
  while (s.lanes > base_lanes(f, t) && s.lanes / 2 >= columns && rows >= 2 * s.tile)
    s.lanes /= 2, s.tile *= 2;
  const std::int64_t tiles =
      e.kept / rows / columns * ((rows + s.tile - 1) / s.tile) * ((columns + s.lanes - 1) / s.lanes);
  const std::int64_t near = t.l2_bytes / 4 / (e.reduced * std::max(f.loaded_bytes, 1) * s.lanes),
                     most = std::clamp<std::int64_t>(near, 1, kMostColumns);
  s.block = s.lanes * std::clamp<std::int64_t>(tiles / (kTilesAThread * t.threads), 1, most);
  s.stream = goes_past(f, t, f.row_bytes_out) && s.lanes * f.row_narrowest >= kLine &&
             columns * f.row_narrowest % kLine == 0;
  return s;
}

/// Operands that are contiguous along another axis than the last go through tiles of scratch memory; false
/// where there are none, or their runs are too short.
bool tile_operands(const Facts& f, int lanes, Schedule& s) {
  if (f.states > 0 || f.across < 0 || 2 * f.last_run < lanes || f.across_run < kLeastTile) return false;
  s.form = Form::Tiles;
  s.lanes = s.stream ? std::clamp(kLine / f.out_narrowest, lanes, 4 * lanes) : lanes;
  s.block = s.run = tile_side(f.across_bytes);
  s.run_rows = kPiece / f.across_narrowest;
  s.run_lanes = std::max(s.run_rows, kLeastLanes);
  for (std::int64_t n = f.axes.back().extent; n < f.last_run && n < s.block;)
    n *= f.axes[static_cast<std::size_t>(--s.lane_axis)].extent;
  return true;
}

/// A map: rows on lanes, or what is better where they are short.
Schedule schedule_map(const Facts& f, const Target& t, Schedule s) {
  const int lanes = base_lanes(f, t), last = s.lane_axis;
  s.form = last == 0 ? Form::Flat : Form::Rows;
  s.lanes = lanes * registers_of_map(f);
  if (f.states > 0) s.lanes = lanes * (f.states <= kFewStates ? 4 : 2);
  s.block = f.states > 0 ? kLoopBlock : kFlatBlock;
  if (tile_operands(f, lanes, s) || find_short_rows(f, t, lanes, s)) return s;
  // Rows of any length share the lanes as one where all operands have them so in memory. An element of
  // another operand is found by a division and gathered: rows of a register's length are better off alone.
  if (f.axes.back().extent < (f.rows_apart ? lanes : 2 * s.lanes))
    for (std::int64_t n = f.axes.back().extent; s.lane_axis > 0 && n < 16 * s.lanes;)
      n *= f.axes[static_cast<std::size_t>(--s.lane_axis)].extent;
  if (s.lane_axis == last) use_lanes(f, lanes, s);
  // A line goes past the caches by one store: in two, with work between them, it takes half as long again.
  if (s.stream && f.states == 0 && f.prims < kLongAnyway)
    s.lanes = std::max(s.lanes, lanes_of_line(f, t, lanes));
  return s;
}

/// Short rows that are lanes: a row's lanes would be combined as often as there are rows, which takes long
/// where values have parts.
bool put_rows_on_lanes(const Facts& f, const Target& t, int lanes, const Extents& e, Schedule& s) {
  if (f.rows_alone || !e.last_reduced || e.reduced > (f.in_parts ? 4 : 1) * lanes || e.kept < 4 * lanes)
    return false;
  if (f.axes[static_cast<std::size_t>(e.last_kept)].extent < lanes) return false;
  s.form = Form::Columns;
  s.lanes = lanes;
  s.lane_axis = e.last_kept;
  s.block = block_of_columns(f, e, lanes, t);
  return true;
}

/// Rows of a grid item that each phase goes through before the next begins, so that none waits for its own
/// results: as many as the first cache has until then. Long rows are batches of one: their kernel is the
/// same.
std::int64_t rows_of_batch(const Facts& f, const Target& t, int lanes, const Extents& e) {
  if ((f.phases == 1 && !f.stores_full) || f.states > 0 || e.kept == 1) return 0;
  const std::int64_t row = e.reduced * (f.loaded_bytes + f.widest_bytes), near = kBatchBytes / row,
                     most = std::min(near, e.kept / (4 * t.threads));
  return most < lanes ? std::max<std::int64_t>(1, most) : std::min(most / lanes * lanes, kMostBatch);
}

/// Reductions of rows that are combined with several others: a grid item has the results of several rows of
/// the axis that the largest load repeats along, and reads that load's row once for all. Later phases of one
/// row by itself find it in the second cache, where that has room.
bool tile_rows(const Facts& f, const Target& t, int lanes, const Extents& e, Schedule& s) {
  constexpr int kItems = 2;  // of a thread, at least
  const bool near = f.phases > 1 && e.reduced * f.loaded_bytes <= t.l2_bytes / 2;
  if (f.repeated < 0 || f.rows_alone || near || f.stores_full || e.reduced_axes > 1 || f.in_parts ||
      f.read_twice > 0 || f.states > 0 || f.axes[static_cast<std::size_t>(f.repeated)].extent < kPairRows ||
      e.kept < std::int64_t{kItems} * t.threads * kPairRows)
    return false;
  s.form = Form::Rows;
  s.tile = kPairRows;
  s.tile_axis = f.repeated;
  s.lanes = lanes;
  return true;
}

/// Reductions along rows: a row on lanes, or in chunks where rows are few or long.
Schedule schedule_rows(const Facts& f, const Target& t, int lanes, const Extents& e, Schedule s) {
  if (tile_rows(f, t, lanes, e, s)) return s;
  const bool few = e.kept < 2 * t.threads;
  if (!may_split(f) || e.reduced < (few ? kSplitAbove : kAddedByLane * lanes)) {
    s.form = Form::Rows;
    // Short rows mask some lanes, and their lanes are combined as often as there are rows. No width between:
    // each is another kernel.
    const std::int64_t row = f.axes.back().extent;
    const bool narrow = row <= 2 * lanes || (f.prims > kLongBody && row < 16 * lanes);
    s.lanes = narrow ? lanes : widen(lanes, f.prims);
    s.batch = rows_of_batch(f, t, lanes, e);
    if (s.batch > 0) s.run_lanes = lanes;
    return s;
  }
  s.form = Form::Split;
  s.lanes = widen(lanes, f.prims - f.row_prims);
  // Chunks of the outermost reduced axis; inner reduced axes run whole.
  const std::int64_t inner = e.reduced / e.outermost;
  const std::int64_t most = std::max<std::int64_t>(1, kAddedByLane * s.lanes / inner);
  const std::int64_t want =
      std::min<std::int64_t>(std::max<std::int64_t>(1, e.reduced / kMinChunk), 8 * t.threads);
  s.chunk = std::min(most, std::max<std::int64_t>(ceil_div(e.outermost, want),
                                                  std::max<std::int64_t>(1, kMinChunk / inner)));
  if (inner == 1) s.chunk = round_up(s.chunk, 64);
  return s;
}

/// The first of the last kept axes that are to share the lanes as one, because the last alone would leave
/// many idle, or read parts of lines, and operands go on along those before; or -1. `columns`: their points.
int find_short_columns(const Facts& f, int lanes, std::int64_t& columns) {
  std::int64_t axis = std::ssize(f.axes) - 1, points = columns, run = columns * f.loaded_bytes;
  if (f.rows_alone || f.jumps || f.guarded || f.states > 0) return -1;
  if ((run == 0 || run >= 2 * kLine) && !leaves_idle(columns, lanes)) return -1;
  while (axis > f.near && points < kManyColumns && !f.axes[static_cast<std::size_t>(axis) - 1].reduced)
    points *= f.axes[static_cast<std::size_t>(--axis)].extent;
  if (points < 2 * round_up(columns, lanes)) return -1;
  columns = points;
  return static_cast<int>(axis);
}

/// Reductions down many columns, read row by row: a grid item has a stripe of columns.
Schedule schedule_stripes(const Facts& f, const Target& t, int lanes, const Extents& e, std::int64_t columns,
                          Schedule s) {
  const std::int64_t outer = e.kept / columns;
  s.form = Form::Stripes;
  s.lanes = widen(lanes, f.prims);
  const bool wide = columns * outer >= 4 * t.threads * kWideStripe;  // enough stripes of whole columns
  const bool cut = may_split(f) && outer < 4 * t.threads && !wide;
  s.block = cut ? kStripe : stripe_of(columns, outer, t);
  // The first cache has values and positions of half as many columns, and the rows' parts.
  if (f.phases == 1 && f.kept > kKeptInStripes) s.block = std::min(s.block, kStripe / 2);
  if (cut) s.chunk = chunk_of(e.outermost, 4 * t.threads / outer);
  // What later phases read again is in the second cache, if it has columns enough. Short runs that begin
  // anywhere in a line take longer than long ones from memory.
  const bool whole_lines = columns * f.loaded_bytes % kLine == 0;
  const std::int64_t least = whole_lines || s.block < kWideStripe ? kNearColumns : 4 * kNearColumns;
  const auto near = [&](int bytes) { return t.l2_bytes / 2 / (e.reduced * std::max(bytes, 1)) / 64 * 64; };
  std::int64_t most = near(std::max(f.loaded_bytes, f.kept_bytes));
  if (most < least) most = near(f.loaded_bytes);
  if ((f.phases > 1 || f.stores_full) && most >= least) s.block = std::min(s.block, most);
  return s;
}

/// The lanes of columns go down many rows, which are written side by side: past the caches as whole lines or
/// not at all.
void write_lines(const Facts& f, std::int64_t columns, Schedule& s) {
  if (!s.stream) return;
  const int wide = kLine / f.out_narrowest;
  s.stream = columns * f.out_narrowest % kLine == 0 && wide <= 4 * s.lanes && columns >= wide;
  if (s.stream) s.lanes = std::max(s.lanes, wide);
}

/// Reductions down columns: adjacent columns are lanes.
Schedule schedule_columns(const Facts& f, const Target& t, int lanes, const Extents& e, Schedule s) {
  std::int64_t columns = f.axes.back().extent;
  if (f.apart >= 0 && !f.rows_alone && may_split(f) && columns >= lanes &&
      f.axes[static_cast<std::size_t>(f.apart)].extent >= kPairRows)
    return schedule_pairs(f, t, s, e);
  s.kept_from = find_short_columns(f, lanes, columns);
  const std::int64_t least = f.read_twice > 0 || f.in_parts ? kLongStripe : kStripeAbove;
  if (e.reduced >= least && columns >= 4 * lanes && e.reduced * e.kept > kSmallWork)
    return schedule_stripes(f, t, lanes, e, columns, s);
  s.lanes = columns >= 4 * lanes ? widen(lanes, f.prims) : lanes;
  const std::int64_t items = e.kept / columns * ceil_div(columns, s.lanes);
  if (may_split(f) && items < 2 * t.threads && e.reduced * e.kept >= 4 * kSplitAbove && e.reduced >= 64) {
    s.form = Form::SplitColumns;
    s.kept_from = -1;
    // Each vector of lanes walks all rows: few columns are one vector, whose registers wait side by side.
    while (s.lanes < columns && s.lanes < 4 * lanes) s.lanes *= 2;
    s.block = s.lanes;
    s.chunk = chunk_of(e.outermost, 8 * t.threads);
    return s;
  }
  s.form = Form::Columns;
  write_lines(f, columns, s);
  s.block = block_of_columns(f, e, s.lanes, t);
  return s;
}

Schedule schedule_cpu(const Facts& f, const Target& t) {
  Schedule s;
  s.stream = goes_past(f, t, f.out_bytes);
  s.lane_axis = static_cast<int>(f.axes.size()) - 1;
  const Extents e = extents_of(f);
  if (f.scans) return schedule_scan(f, t, e, s);
  if (f.phases == 0) return schedule_map(f, t, s);
  const int lanes = base_lanes(f, t);
  // Short slabs one by one would begin more loops than they have vectors.
  if (f.phases > 1 && bunch_rows(f, t, lanes, s)) return s;
  if (Schedule folded = s; find_fold(f, t, lanes, e, folded)) return folded;
  if (bunch_rows(f, t, lanes, s) || put_rows_on_lanes(f, t, lanes, e, s)) return s;
  return e.last_reduced ? schedule_rows(f, t, lanes, e, s) : schedule_columns(f, t, lanes, e, s);
}

}  // namespace

int pair_lanes(const Facts& f, const Target& t) {
  return base_lanes(f, t) * (t.vector_bytes >= 64 && f.prims <= kPairBody ? 4 : 2);
}

std::variant<Schedule, std::string> schedule(const Facts& f, const Target& t) {
  if (f.levels > 1 || f.slab) return schedule_nest(f, t);
  if (t.strict && (f.phases > 0 || f.scans)) return schedule_strict(f, t);
  if (t.gpu) return schedule_gpu(f, t);
  return schedule_cpu(f, t);
}

}  // namespace kiln::schedule
