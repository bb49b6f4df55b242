#include "library/cuda/scatter_ways.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace kiln::cuda {

using library::Scatter;

namespace {

constexpr const char* kSetSymbols[] = {"clear_claims", "claim", "set"};
constexpr const char* kAtomicSymbols[] = {"combine",    "combine_range",   "combine_whole_rows",
                                          "widen",      "narrow",          "widen_all",
                                          "narrow_all", "combine_vectors", "combine_vectors_range"};
constexpr const char* kSumSymbols[] = {"add_whole_rows",
                                       "add_rows_by_fours",
                                       "add_rows_by_pairs",
                                       "add_rows_by_ones",
                                       "begin_sums",
                                       "end_sums",
                                       "add_columns_by_fours",
                                       "add_columns_by_pairs",
                                       "add_columns_by_ones",
                                       "add_whole_rows_here",
                                       "add_rows_here_by_fours",
                                       "add_rows_here_by_pairs",
                                       "add_rows_here_by_ones"};
constexpr const char* kCountSymbols[] = {"count_places"};
constexpr const char* kPrivateSymbols[] = {
    "combine_privately", "combine_range", "combine_whole_rows", "widen", "narrow", "widen_all", "narrow_all"};
constexpr const char* kOrderedSymbols[] = {"number_slots", "combine_in_order"};
constexpr const char* kBucketSymbols[] = {"count_buckets", "begin_buckets", "move_elements",
                                          "move_words",    "move_vectors",  "add_buckets"};
constexpr const char* kRowSymbols[] = {
    "count_rows",           "count_few_rows",       "begin_rows",
    "list_values",          "combine_rows_vectors", "combine_many_vectors",
    "combine_rows_pairs",   "combine_many_pairs",   "combine_rows_elements",
    "combine_many_elements"};

constexpr std::int64_t kPrivateBytes = 32 << 10;  // of accumulators in a block's shared memory
constexpr std::int64_t kFewestPrivately = 4096;   // values; fewer meet in the output as quickly
constexpr std::int64_t kGroupValues = 16384;      // groups are joined up to so many values
constexpr int kMostLogCopies = 5;                 // a copy for each lane
constexpr std::int64_t kRowBytes = 16;            // shorter rows meet as quickly by atomic operations
constexpr std::int64_t kWideRow = 128;            // listing them takes longer if they are shorter and many
constexpr std::int64_t kFewestRows = 4096;        // of values
constexpr std::int64_t kMostListed = std::int64_t{1} << 31;
constexpr std::int64_t kFewCounters = 1 << 13;    // of a block, of which several share a multiprocessor, …
constexpr std::int64_t kMostCounters = 1 << 15;   // … and of one that has it alone
constexpr std::uint32_t kCountingThreads = 1024;  // of a block that makes the indices, too
constexpr std::int64_t kMostRanges = 4;           // times that indices are read
constexpr std::int64_t kShortRow = 32;            // bytes
constexpr std::int64_t kVectorBytes = 16;         // that a thread of a listed row reads at once
constexpr std::int64_t kColumnBytes = 80 << 10;   // of a block's sums of columns
constexpr std::int64_t kLongHalves = 512;         // elements
constexpr std::int64_t kMostWidth = 1 << 16;
constexpr std::int64_t kMostVectors = std::int64_t{1} << 31;

constexpr std::int64_t kBucketBytes = 128 << 10;      // of a block's sums: few buckets get long runs
constexpr std::int64_t kMostBucketBytes = 192 << 10;  // likewise, where there would be too many
constexpr std::int64_t kMostLogBucket = 16;           // rows, whose numbers have two bytes
constexpr std::int64_t kLeastPiece = 1 << 16;         // values

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

bool sums(Combine how) { return how == Combine::Add || how == Combine::Multiply; }
bool in_order(const Scatter& call) { return call.ordered && is_float(call.dtype) && sums(call.how); }

std::int64_t accumulators(const Scatter& call) {
  return kPrivateBytes / (widens(call.dtype, call.how) || size_of(call.dtype) < 8 ? 4 : 8);
}

/// Groups go along the axes before the one that indices choose on.
struct Groups {
  std::int64_t count = 1, values = 1, places = 1;
  explicit Groups(const Scatter& call) {
    for (int a = 0; a < call.x.rank; ++a) {
      if (a < call.axis) count *= call.x.dims[a];
      if (a >= call.axis) places *= call.x.dims[a];
      if (a >= call.axis) values *= call.values.dims[a];
    }
  }
};

/// Whether one integer is added wherever an index says, and the places are few enough to count the indices.
bool counts(const Scatter& call) {
  if (call.how != Combine::Add || !is_int(call.dtype)) return false;
  const std::int64_t count = call.values.dims[call.axis], places = call.x.dims[call.axis];
  for (int a = 0; a < call.x.rank; ++a)
    if (a != call.axis && (call.x.dims[a] != 1 || call.values.dims[a] != 1)) return false;
  return count >= kFewestPrivately && call.values.strides[call.axis] == 0 &&
         call.indices.strides[call.axis] == 1 && places <= kMostRanges * kMostCounters &&
         count >= kValuesPerPlace * places;
}

/// Whether floats of whole rows are added where the second cache has the sums. What else is read leaves room
/// for few sums; for those of short rows that is still faster than to list their values. (Of three elements
/// they take a third more memory than the result, which then is faster.)
bool adds_rows(const Scatter& call, std::uint64_t l2_bytes) {
  if (!adds_words(call) || !is_float(call.dtype) || in_order(call) || meets_privately(call)) return false;
  const std::int64_t width = row_width(call);
  if (width < 1 || width > kMostWidth) return false;
  const RowSums s(call);
  if (s.here()) return true;
  if (width == 1) return false;
  // Sums of halves are twice the bytes that are read of their rows: unless threads have columns, these are
  // listed.
  if (is_half(call.dtype) && width >= kLongHalves && s.rows <= kFewRows && column_bytes(s, 1) > kColumnBytes)
    return false;
  // Rows that are listed are read by elements where they are no vectors, and in parts of lines.
  const std::int64_t row_bytes = width * size_of(call.dtype), room = static_cast<std::int64_t>(l2_bytes) / 4;
  const bool slowly_listed =
      row_bytes <= (is_half(call.dtype) ? kShortRow : kWideRow - 1) || row_bytes % kVectorBytes != 0;
  return s.count >= kFewestPrivately && 2 * s.count >= s.rows && s.count * s.vectors < kMostVectors &&
         s.bytes() <= (width == 3      ? 2
                       : slowly_listed ? 3
                                       : 1) *
                          room;
}

/// Whether short rows of floats meet in the result, which the second cache has where their sums beside it,
/// with room for whole vectors, would leave it.
bool meets_in_result(const Scatter& call, std::uint64_t l2_bytes) {
  const std::int64_t width = row_width(call);
  return adds_words(call) && call.dtype == DType::Float32 && width > 0 && 4 * width <= kShortRow &&
         width % 4 != 0 && 4 * width * call.x.dims[0] <= 3 * static_cast<std::int64_t>(l2_bytes) / 4;
}

/// Whether values of whole rows are listed by row.
bool takes_rows(const Scatter& call, std::uint64_t l2_bytes) {
  if (call.how == Combine::Set || in_order(call) || counts(call) || meets_privately(call)) return false;
  if (meets_in_result(call, l2_bytes)) return false;
  const std::int64_t width = row_width(call), count = call.values.dims[0], rows = call.x.dims[0],
                     bytes = width * size_of(call.dtype);
  return bytes >= kRowBytes && count >= kFewestRows &&
         (count <= kValuesOfRow * rows || (rows <= kFewRows && bytes >= kWideRow)) && count < kMostListed &&
         rows < kMostListed;
}

/// Elements as they are kept until they are complete.
std::int64_t kept_bytes(const Scatter& call) {
  return widens(call.dtype, call.how) ? 4 : size_of(call.dtype);
}

/// Whether values of short rows are moved to buckets first: the sums leave the second cache, where each value
/// would read and write lines of memory.
bool takes_buckets(const Scatter& call, std::uint64_t l2_bytes) {
  if (call.how != Combine::Add || in_order(call)) return false;
  const std::int64_t width = row_width(call), rows = call.x.dims[0], count = call.values.dims[0];
  if (width == 0 || width * size_of(call.dtype) > kShortRow || count >= kMostListed || rows >= kMostListed)
    return false;
  if (rows * width * kept_bytes(call) <= static_cast<std::int64_t>(l2_bytes) || 2 * count < rows)
    return false;
  const Buckets b(call);
  return b.buckets <= kMostBuckets && b.sum_bytes(call) <= kMostBucketBytes;
}

std::uint64_t believed_l2(const Scatter& call, std::uint64_t l2_bytes) {
  return call.choices.has(FusionVariant::SmallerCaches)  ? l2_bytes / 4
         : call.choices.has(FusionVariant::LargerCaches) ? l2_bytes * 4
                                                         : l2_bytes;
}

}  // namespace

std::int64_t row_width(const Scatter& call) {
  if (call.axis != 0 || call.indices.strides[0] != 1) return 0;
  std::int64_t width = 1;
  for (int a = call.x.rank; a-- > 1;) {
    if (call.x.dims[a] == 1) continue;
    if (call.indices.strides[a] != 0 || call.values.strides[a] != width ||
        call.values.dims[a] != call.x.dims[a])
      return 0;
    width *= call.x.dims[a];
  }
  return width;
}

DType worked_in(DType dtype, Combine how) {
  if (how == Combine::Set || (sums(how) && is_int(dtype))) {
    switch (size_of(dtype)) {
      case 1: return DType::UInt8;
      case 2: return DType::UInt16;
      case 4: return DType::UInt32;
      default: return DType::UInt64;
    }
  }
  return is_bool(dtype) ? DType::UInt8 : dtype;
}

bool widens(DType dtype, Combine how) { return is_half(dtype) && sums(how); }

bool adds_words(const Scatter& call) {
  return call.how == Combine::Add && (widens(call.dtype, call.how) || size_of(call.dtype) == 4);
}

bool meets_privately(const Scatter& call) {
  if (call.how == Combine::Set || call.choices.has(FusionVariant::OneTable) || in_order(call)) return false;
  const Groups groups(call);
  return groups.places <= accumulators(call) && groups.values >= kValuesPerPlace * groups.places &&
         groups.count * groups.values >= kFewestPrivately;
}

CountUnits count_units(const Scatter& call, int multiprocessors) {
  CountUnits u;
  u.count = call.values.dims[call.axis];
  u.places = call.x.dims[call.axis];
  u.ranges = static_cast<std::int32_t>(ceil_div(u.places, kMostCounters));
  u.range = ceil_div(u.places, u.ranges);
  while (u.log_copies < kMostLogCopies && u.range << (u.log_copies + 1) <= kFewCounters) ++u.log_copies;
  const std::int64_t resident = u.range <= kFewCounters ? 2 : 1;
  const std::int64_t chunks = std::max<std::int64_t>(1, resident * multiprocessors / u.ranges);
  const std::int64_t least = std::max<std::int64_t>(kLeastUnit, kValuesPerPlace * u.range);
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  u.chunk = std::min(kMost, ceil_div(std::max(least, ceil_div(u.count, chunks)), 16) * 16);
  return u;
}

Units units_of(const Scatter& call, int multiprocessors) {
  const Groups groups(call);
  const std::int64_t room = accumulators(call);
  const std::int64_t together = std::clamp<std::int64_t>(ceil_div(kGroupValues, groups.values), 1,
                                                         std::min(groups.count, room / groups.places));
  Units units;
  units.values = together * groups.values;
  units.places = together * groups.places;
  units.all_places = groups.count * groups.places;
  const std::int64_t all = groups.count * groups.values, blocks = std::int64_t{4} * multiprocessors;
  const std::int64_t least = std::max(kLeastUnit, kValuesPerPlace * units.places);
  units.chunk = std::min(units.values, std::max(least, ceil_div(all, blocks)));
  units.chunks = ceil_div(units.values, units.chunk);
  units.count = ceil_div(groups.count, together) * units.chunks;
  const std::int64_t copied = std::min(room, units.chunk);
  while (units.log_copies < kMostLogCopies && units.places << (units.log_copies + 1) <= copied)
    ++units.log_copies;
  return units;
}

std::int32_t few_values(std::int64_t threads, std::int64_t multiprocessors) {
  constexpr std::int64_t kEnough = 512, kFewest = 2;  // threads of a multiprocessor; values
  return static_cast<std::int32_t>(
      std::clamp(kFewValues * threads / (kEnough * multiprocessors), kFewest, kFewValues));
}

std::uint32_t inverse_of(std::int64_t divisor) {
  return static_cast<std::uint32_t>(std::min<std::int64_t>((std::int64_t{1} << 32) / divisor, 0xffffffff));
}

RowSums::RowSums(const Scatter& call)
    : rows(call.x.dims[0]),
      count(call.values.dims[0]),
      width(row_width(call)),
      value_stride(call.values.strides[0]) {
  const std::int64_t lanes = width <= 2 ? width : 4;
  pitch = ceil_div(width, lanes) * lanes;
  vectors = static_cast<std::int32_t>(pitch / lanes);
  inverse = inverse_of(vectors);
}

Buckets::Buckets(const Scatter& call)
    : rows(call.x.dims[0]),
      count(call.values.dims[0]),
      width(row_width(call)),
      value_stride(call.values.strides[0]) {
  while (log_rows < kMostLogBucket && sum_bytes(call) <= kBucketBytes / 2) ++log_rows;
  while (log_rows < kMostLogBucket && ceil_div(rows, std::int64_t{1} << log_rows) > kMostBuckets) ++log_rows;
  buckets = static_cast<std::int32_t>(ceil_div(rows, std::int64_t{1} << log_rows));
  piece = static_cast<std::int32_t>(std::max(kLeastPiece, 2 * ceil_div(count, buckets)));
  find_inverse();
}

void Buckets::find_inverse() { inverse = inverse_of(width); }

std::int64_t Buckets::sum_bytes(const Scatter& call) const { return (width * kept_bytes(call)) << log_rows; }

bool RowSums::here() const {
  // Each block adds its sums to the output; those of two values a row and multiprocessor take a third of the
  // time.
  constexpr std::int64_t kValuesHere = 512;
  return bytes() <= kMostHereBytes && count >= kValuesHere * rows && count * vectors < kMostVectors;
}

std::int64_t column_bytes(const RowSums& s, std::int64_t lanes) {
  return kColumnThreads * (s.rows + 1) * lanes * static_cast<std::int64_t>(sizeof(float));
}

std::optional<ColumnUnits> column_units(const RowSums& s, std::int64_t lanes, int multiprocessors) {
  constexpr std::int64_t kMostOfAll = 192 << 10;  // bytes of sums; of a multiprocessor
  constexpr std::int64_t kFewestColumns = 128;    // of a row
  // Values of a block for each row: blocks of narrow columns are to be many, for enough loads under way.
  const std::int64_t bytes = column_bytes(s, lanes), per_row = 4 * lanes;
  if (s.width < kFewestColumns || s.width % lanes != 0 || bytes > kColumnBytes) return {};
  ColumnUnits c;
  c.lanes = static_cast<std::int32_t>(std::min(kColumnThreads, s.width / lanes));
  c.parts = static_cast<std::int32_t>(kColumnThreads / c.lanes);
  c.blocks = static_cast<std::int32_t>(ceil_div(s.width, c.lanes * lanes));
  const std::int64_t all = multiprocessors * std::min<std::int64_t>(kMostOfAll / bytes, 8);
  c.chunk =
      std::max(per_row * s.rows * c.parts, ceil_div(s.count, std::max<std::int64_t>(all / c.blocks, 1)));
  if (ceil_div(s.count, c.chunk) * c.blocks < multiprocessors) return {};
  return c;
}

std::int64_t ranges_of(const Scatter& call, std::uint64_t l2_bytes) {
  constexpr std::int64_t kSector = 32;  // bytes, of which one value at least is to come for each
  if (call.choices.has(FusionVariant::OneTable) || call.values.dims[call.axis] < 2) return 1;
  std::int64_t values = 1, bytes = widens(call.dtype, call.how) ? 4 : size_of(call.dtype);
  for (int a = 0; a < call.values.rank; ++a) {
    if (a < call.axis && call.x.dims[a] != 1)
      return 1;  // values that follow each other meet in a part anyway
    values *= call.values.dims[a];
    bytes *= call.x.dims[a];
  }
  const auto l2 = static_cast<std::int64_t>(believed_l2(call, l2_bytes));
  if (bytes <= l2 || values * kSector < bytes) return 1;
  return std::min(ceil_div(bytes, l2 * 3 / 4), call.x.dims[call.axis]);
}

bool meets_in_ranges(const Scatter& call, std::uint64_t l2_bytes) {
  constexpr std::int64_t kLanes = 4;
  const std::int64_t width = row_width(call);
  return call.how == Combine::Add && call.dtype == DType::Float32 && !in_order(call) && width > 0 &&
         width % kLanes == 0 && 4 * width < kWideRow && call.values.strides[0] % kLanes == 0 &&
         2 * call.values.dims[0] >= call.x.dims[0] && ranges_of(call, l2_bytes) > 1;
}

Way way_of(const Scatter& call, std::uint64_t l2_bytes) {
  if (call.how == Combine::Set) return Way::Set;
  if (in_order(call)) return Way::Ordered;
  if (call.choices.has(FusionVariant::OneTable)) return Way::Apart;
  bool other = call.choices.has(FusionVariant::OtherWay);  // than the first that could be taken
  const auto takes = [&](bool could) { return could && !std::exchange(other, false); };
  if (takes(meets_in_ranges(call, l2_bytes))) return Way::Apart;
  l2_bytes = believed_l2(call, l2_bytes);
  if (takes(counts(call))) return Way::Counted;
  if (takes(takes_buckets(call, l2_bytes))) return Way::Bucketed;
  if (takes(adds_rows(call, l2_bytes))) return Way::Summed;
  if (takes(takes_rows(call, l2_bytes))) return Way::Listed;
  return meets_privately(call) ? Way::Privately : Way::Apart;
}

library::Variants scatter_choices(const Scatter& call, std::uint64_t l2_bytes) {
  const auto how = [&](const Scatter& s) {
    const Way way = way_of(s, l2_bytes);
    return std::pair(way, way == Way::Apart ? ranges_of(s, l2_bytes) : 1);
  };
  library::Variants out;
  if (call.how == Combine::Set || in_order(call)) return out;
  std::vector<decltype(how(call))> known{how(call)};
  for (const FusionVariant v : {FusionVariant::OneTable, FusionVariant::OtherWay,
                                FusionVariant::SmallerCaches, FusionVariant::LargerCaches}) {
    if (call.choices.has(v)) continue;
    Scatter other = call;
    other.choices.take(v);
    if (std::ranges::find(known, how(other)) != known.end()) continue;
    known.push_back(how(other));
    out.add(v);
  }
  return out;
}

std::optional<library::Counting> counting_of(const Scatter& call, int multiprocessors,
                                             std::uint64_t l2_bytes) {
  constexpr std::size_t kIndices = 1, kValues = 2;
  if (way_of(call, l2_bytes) != Way::Counted || size_of(call.dtype) < 4) return {};
  const std::int64_t places = call.x.dims[call.axis];
  if (places > 2 * kMostCounters) return {};
  library::Counting c{.indices = kIndices, .number = kValues, .places = places};
  c.halves = places > kMostCounters;
  while (c.log_copies < kMostLogCopies && places << (c.log_copies + 1) <= kFewCounters) ++c.log_copies;
  c.threads = kCountingThreads;
  c.blocks = static_cast<std::uint32_t>(multiprocessors);
  c.shared_bytes = static_cast<std::uint32_t>(4 * (c.halves ? ceil_div(places, 2) : places << c.log_copies));
  return c;
}

std::span<const char* const> symbols_of(const Scatter& call, Way way) {
  const bool widened = widens(call.dtype, call.how);
  switch (way) {
    case Way::Set: return kSetSymbols;
    case Way::Ordered: return kOrderedSymbols;
    case Way::Counted: return kCountSymbols;
    case Way::Summed: return kSumSymbols;
    case Way::Listed: return kRowSymbols;
    case Way::Bucketed: return kBucketSymbols;
    case Way::Privately: return std::span(kPrivateSymbols).first(widened ? 7 : 1);
    case Way::Apart: break;
  }
  return std::span(kAtomicSymbols).first(adds_words(call) ? 9 : widened ? 7 : 3);
}

bool sums_beside(const Scatter& call) {
  const std::int64_t width = row_width(call), lanes = width <= 2 ? width : 4;
  return size_of(call.dtype) < 4 || width % lanes != 0 ||
         reinterpret_cast<std::uintptr_t>(call.out) % static_cast<std::uintptr_t>(4 * lanes) != 0;
}

}  // namespace kiln::cuda
