// scatter_ways: how a scatter on a device is done, by its dtype, extents and strides, and the numbers that
// its kernels get.
#pragma once

#include "library/call.h"
#include "library/library.h"

#include <cstdint>
#include <optional>
#include <span>

namespace kiln::cuda {

/// How values meet elements: the texts and kernels of a call.
enum class Way : std::uint8_t { Set, Ordered, Counted, Summed, Listed, Bucketed, Privately, Apart };
/// `l2_bytes`: of the device.
Way way_of(const library::Scatter& call, std::uint64_t l2_bytes);
/// What could be done otherwise, with the same results.
library::Variants scatter_choices(const library::Scatter& call, std::uint64_t l2_bytes);
/// How a kernel that makes the indices counts them, where one number is added at each and a block has
/// counters for all places.
std::optional<library::Counting> counting_of(const library::Scatter& call, int multiprocessors,
                                             std::uint64_t l2_bytes);
/// The kernels of that way's source, in the order of its enumerators below.
std::span<const char* const> symbols_of(const library::Scatter& call, Way way);

enum SetKernel { kClearClaims, kClaim, kSet };
enum AtomicKernel {
  kCombine,
  kCombineRange,
  kCombineWholeRows,
  kWiden,
  kNarrow,
  kWidenAll,
  kNarrowAll,
  kCombineVectors,
  kCombineVectorsRange
};
enum SumKernel {
  kAddWholeRows,
  kAddRowsByFours,
  kAddRowsByPairs,
  kAddRowsByOnes,
  kBeginSums,
  kEndSums,
  kAddColumnsByFours,
  kAddColumnsByPairs,
  kAddColumnsByOnes,
  kAddWholeRowsHere,
  kAddRowsHereByFours,
  kAddRowsHereByPairs,
  kAddRowsHereByOnes
};
enum PrivateKernel { kCombinePrivately = 0 };  // in the place of kCombine; the others are the same
enum CountKernel { kCountPlaces };
enum OrderedKernel { kNumberSlots, kCombineInOrder };
enum BucketKernel { kCountBuckets, kBeginBuckets, kMoveElements, kMoveWords, kMoveVectors, kAddBuckets };
enum RowKernel {
  kCountRows,
  kCountFewRows,
  kBeginRows,
  kListValues,
  kRowsByVectors,
  kManyByVectors,
  kRowsByPairs,
  kManyByPairs,
  kRows,
  kMany
};

/// Elements of the rows that indices choose, where these are whole ones along the first axis and lie in
/// memory one after the other; else 0.
std::int64_t row_width(const library::Scatter& call);
/// One dtype for all whose kernels are the same: bits that are moved, integers that wrap.
DType worked_in(DType dtype, Combine how);
/// Whether elements are kept as floats until they are complete.
bool widens(DType dtype, Combine how);
/// Whether values are added to elements that are kept in 32 bits.
bool adds_words(const library::Scatter& call);
/// Whether many values meet in places so few that a block has accumulators for those of a group.
bool meets_privately(const library::Scatter& call);
/// Whether rows of vectors of floats meet in the result, in one range of it after the other, each of which
/// the second cache has.
bool meets_in_ranges(const library::Scatter& call, std::uint64_t l2_bytes);
/// Pre: Way::Summed. Whether sums lie beside the result: halves as floats, and rows with room for whole
/// vectors.
bool sums_beside(const library::Scatter& call);

constexpr std::int64_t kMetAtOnce = 4;       // values of a thread: the kernels'
constexpr std::int64_t kLeastUnit = 4096;    // values
constexpr std::int64_t kValuesPerPlace = 4;  // at least, or clearing and combining take the gain

/// The kernels' Units: groups of values, each with the places that its values alone may reach.
struct Units {
  std::int64_t count = 0, chunks = 1, values = 0, chunk = 0, places = 0, all_places = 0;
  std::int32_t log_copies = 0, unused = 0;
};
static_assert(sizeof(Units) == 7 * 8);
/// Pre: meets_privately.
Units units_of(const library::Scatter& call, int multiprocessors);

/// The kernels' CountUnits.
struct CountUnits {
  std::int64_t count = 0, chunk = 0, places = 0, range = 0;
  std::int32_t ranges = 1, log_copies = 0;
};
static_assert(sizeof(CountUnits) == 5 * 8);
/// Pre: Way::Counted.
CountUnits count_units(const library::Scatter& call, int multiprocessors);

/// The kernels' RowScatter.
struct RowScatter {
  std::int64_t rows = 0, count = 0, width = 1, value_stride = 0;
  std::int32_t log_team = 0, chunks = 1, few = 0, unused = 0;
};
static_assert(sizeof(RowScatter) == 6 * 8);
constexpr std::int64_t kValuesOfRow = 8;  // on average, at most: counting would wait for the same counters, …
constexpr std::int64_t kFewValues =
    64;  // of a row that a team combines, where there are teams for all multiprocessors
constexpr std::int64_t kFewRows = 8192;   // … of more rows than a block has in shared memory: the kernels'
constexpr std::int64_t kCounting = 1024;  // threads of such a block: the kernels'
constexpr int kManyBlocks = 8;            // a multiprocessor, of rows with many values
constexpr int kLogBlock = 8;              // threads of a block, of which a team has all at most
constexpr std::int64_t kBusy = 2048;      // threads of a multiprocessor, which teams are enlarged for
constexpr std::int64_t kLeastVectors = 4, kLeastElements = 8;  // of a row's columns that such a block has
constexpr std::int64_t kListed = 1024;  // rows whose places in the list a block finds: the kernels'

/// Values of a row, up to which a team of threads combines them, if all teams have so many threads: fewer
/// where these are not enough for the multiprocessors.
std::int32_t few_values(std::int64_t threads, std::int64_t multiprocessors);

/// The kernels' RowSums.
struct RowSums {
  std::int64_t rows = 0, count = 0, width = 1, value_stride = 0, pitch = 1;
  std::int32_t vectors = 1;
  std::uint32_t inverse = 0;

  explicit RowSums(const library::Scatter& call);
  /// Whether rows are so few, and values so many, that blocks add them to sums of their own.
  bool here() const;
  /// Bytes of all sums.
  std::int64_t bytes() const { return rows * pitch * static_cast<std::int64_t>(sizeof(float)); }
};
static_assert(sizeof(RowSums) == 6 * 8);
constexpr std::int64_t kHere = 1024;  // threads of such a block: the kernels'
constexpr std::int64_t kMostHereBytes = 216 << 10;

/// The kernels' ColumnUnits: blocks that have some columns of all rows, and some of the values.
struct ColumnUnits {
  std::int64_t chunk = 0;
  std::int32_t lanes = 1, parts = 1, blocks = 1, unused = 0;
};
static_assert(sizeof(ColumnUnits) == 3 * 8);
/// Of threads that have `lanes` adjacent columns, of which rows are multiples; or nothing, where rows are not
/// few, or values not many.
std::optional<ColumnUnits> column_units(const RowSums& s, std::int64_t lanes, int multiprocessors);
/// Bytes of sums of a block.
std::int64_t column_bytes(const RowSums& s, std::int64_t lanes);
constexpr std::int64_t kColumnThreads = 256;

/// The kernels' Buckets.
struct Buckets {
  std::int64_t rows = 0, count = 0, width = 1, value_stride = 0;
  std::int32_t log_rows = 0, buckets = 1, piece = 0;
  std::uint32_t inverse = 0;

  explicit Buckets(const library::Scatter& call);
  /// `inverse` of the width.
  void find_inverse();
  /// Bytes of a block's sums.
  std::int64_t sum_bytes(const library::Scatter& call) const;
};
static_assert(sizeof(Buckets) == 6 * 8);
constexpr std::int64_t kMostBuckets = 4096;                    // the kernels'
constexpr std::int64_t kMoving = 1024, kMoved = 16 * kMoving;  // threads and values of a block that moves
constexpr std::int64_t kAdding = 1024;                         // threads of one that adds

/// Way::Apart: into how many ranges of positions the output is cut, for each of which all indices are read,
/// so that what values meet at one time stays in the second cache.
std::int64_t ranges_of(const library::Scatter& call, std::uint64_t l2_bytes);

}  // namespace kiln::cuda
