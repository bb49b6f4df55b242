#include "library/cuda/sort.h"

#include "codegen/cuda/cuda_expr.h"
#include "device/cuda/driver.h"
#include "device/cuda/template_kernels.h"
#include "device/cuda/workspace.h"
#include "kernels_templates.h"
#include "library/cuda/axes.h"
#include "support/check.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <optional>

namespace kiln::cuda {
namespace {

using library::Sort;

constexpr std::int64_t kTileBytes = 32 << 10;   // of items in a block's registers, or shared memory
constexpr std::int64_t kMostByThread = 16;      // items in registers
constexpr std::int64_t kMostByWords = 32;       // likewise, of a register each, of rows longer than that
constexpr std::int64_t kWide = 8;               // bytes of items of two registers, of which threads …
constexpr std::int64_t kLeastLong = 128;        // … have as many of rows from that length on
constexpr std::int64_t kMostOfRow = 36;         // likewise, of whole rows, of one or two registers each
constexpr std::int64_t kChunk = 2048;           // items that a block merges
constexpr std::int64_t kThreads = 256;          // of a block
constexpr std::int64_t kCounted = 16384;        // elements whose digits a block counts
constexpr std::int64_t kLanes = 32;             // of a warp, which selects as many items of a row at most
constexpr std::int64_t kLeastSelecting = 2048;  // rows, for enough warps
constexpr std::int64_t kMostPositions = std::int64_t{1} << 30;  // that keys of 32 bits leave room for
constexpr std::int64_t kMostByRadix = std::int64_t{1} << 30;    // elements, whose counts fit beside two flags

constexpr int kHopper = 9;  // major compute capability: compares two numbers of 16 bits at once

/// The kernels' Rows.
struct Rows {
  Axes axes;
  std::int64_t count = 1, length = 0, stride = 0, kept = 0, inner = 1;
  std::int32_t descending = 0, unused = 0;
};
static_assert(sizeof(Rows) == sizeof(Axes) + 48);

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// What rows are sorted as, and how.
struct Items {
  enum class Way { Tiles, Select, Merge, Radix };
  const char* order = "KeyAlone";
  bool paired = false;  // two keys a register
  std::int64_t bytes, by_thread, tile, threads = kThreads;
  std::int64_t first;  // items of a row that a thread passes on: by_thread, or what a row keeps if much less
  std::int64_t of_length = 0;  // not 0: of all rows, of which a thread has whole ones
  int passes;                  // of a radix sort: a byte of the key each
  Way way = Way::Tiles;

  /// `halves`: the device compares two numbers of 16 bits at once.
  Items(const Sort& call, bool halves) : bytes(size_of(call.dtype)), passes(static_cast<int>(bytes)) {
    const std::int64_t length = call.in.dims[call.axis];
    if (!call.by_position || keys_suffice(call)) {
      if (call.by_position && is_float(call.dtype)) order = "KeyMended";
    } else {
      choose_order(length);
    }
    by_thread = by_thread_of(bytes);
    tile = kThreads * by_thread;
    if (selects(call)) {
      way = Way::Select;
      first = by_thread;
      return;
    }
    paired = halves && bytes <= 2 && length <= tile &&
             call.choices.decide(true, FusionVariant::MoreLanes, FusionVariant::FewerLanes);
    if (bytes <= 4 && length > kMostByWords && length <= tile &&
        call.choices.decide(true, FusionVariant::FewerThreads, FusionVariant::MoreThreads))
      by_thread = kMostByWords;
    // Whole rows, as many as a power of two; of so many elements anyway threads have whole rows.
    const bool whole = bytes <= 8 && size_of(call.dtype) <= 4;
    if (length <= (whole ? kMostOfRow : by_thread) &&
        !std::has_single_bit(static_cast<std::uint64_t>(length))) {
      by_thread = std::max(by_thread, length);
      of_length = length;
      by_thread =
          length * static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(by_thread / length)));
    }
    // More items of a thread are compared without exchanges between threads.
    if (bytes == kWide && size_of(call.dtype) == 4 && length >= kLeastLong && length <= tile &&
        call.kept > kMostByThread) {
      by_thread = kMostByWords;
      threads = tile / by_thread;
    }
    first = by_thread;
    for (const std::int64_t few : {8, 2})
      if (call.kept <= few && few < std::min(by_thread, length)) first = few;
    if (length <= tile) return;
    // Either way reads and writes all items once a round; merging soon drops those that are not kept.
    const int merges = std::bit_width(static_cast<std::uint64_t>(ceil_div(length, tile) - 1));
    const bool radix = count_of(call.in) < kMostByRadix &&
                       call.choices.decide(merges > passes && call.kept > length / 4, FusionVariant::ByDigits,
                                           FusionVariant::ByComparison);
    way = radix ? Way::Radix : Way::Merge;
  }
  void choose_order(std::int64_t length) {
    if (bytes <= 2 && length <= kThreads * kMostByThread) {
      order = "KeyAboveShort";
      bytes = 4;
    } else if (bytes <= 4 && length < kMostPositions) {
      order = "KeyAbovePosition";
      bytes = 8;
    } else {
      order = "KeyBesidePosition";
      bytes = 16;
    }
  }
  /// Whether a warp soon has met what it keeps of a row. Networks put more elements in order, but take two of
  /// 16 bits at once, and those of 32 bits with few instructions; the fewer are kept, the sooner a thread
  /// drops the others.
  bool selects(const Sort& call) const {
    constexpr std::int64_t kLong = 480, kHalfAsLong = 256, kFew = 8, kLongOfFew = 800, kLongOfTwo = 1600;
    const std::int64_t length = call.in.dims[call.axis];
    const bool many = call.kept > kFew, wide = bytes >= 8;
    const bool possible = call.kept > 1 && call.kept <= kLanes && size_of(call.dtype) >= 4 &&
                          length >= 2 * kLanes && length < kMostPositions && call.in.strides[call.axis] == 1;
    const std::int64_t least = many && wide    ? kHalfAsLong
                               : many || wide  ? kLong
                               : call.kept > 2 ? kLongOfFew
                                               : kLongOfTwo;
    const bool pays = length >= least && count_of(call.in) >= kLeastSelecting * length;
    return possible && call.choices.decide(pays, FusionVariant::SelectFirst, FusionVariant::SortAll);
  }
  static std::int64_t by_thread_of(std::int64_t bytes) {
    return std::min(kMostByThread, kTileBytes / (kThreads * bytes));
  }
  /// Whether the order of positions is wanted of values alone, which keys give: of integers, whose keys stand
  /// for one value each, and of floats where a row is a tile, which is mended.
  static bool keys_suffice(const Sort& call) {
    return call.by_position && !call.positions &&
           (!is_float(call.dtype) || call.in.dims[call.axis] <= kThreads * by_thread_of(size_of(call.dtype)));
  }
  /// In a pass by digits: as many as registers and shared memory have room for.
  std::int64_t moved_by_thread() const { return std::min<std::int64_t>(16, kTileBytes / (kThreads * bytes)); }
};

constexpr const char* kSelectSymbols[] = {"select_first"};
enum MergeKernel { kSortTiles, kMergeRuns };
constexpr const char* kMergeSymbols[] = {"sort_tiles", "merge_runs"};
enum RadixKernel { kClear, kCountDigits, kSortByDigit };
constexpr const char* kRadixSymbols[] = {"clear", "count_digits", "sort_by_digit"};

LaunchShape blocks(std::int64_t count) {
  LaunchShape shape;
  shape.grid[0] = static_cast<std::uint32_t>(std::min<std::int64_t>(count, 1 << 20));
  shape.block[0] = kThreads;
  return shape;
}

/// What kernels write: of keys alone the values, else positions, and values beside them; null: not wanted.
struct Outs {
  void *out, *values;
  explicit Outs(const Sort& call) : Outs(call, call.by_position && !Items::keys_suffice(call)) {}

 private:
  Outs(const Sort& call, bool positions)
      : out(positions ? call.positions : call.values), values(positions ? call.values : nullptr) {}
};

/// How a block reads its rows; the kernels' Reading.
enum ReadingWay { kAlongRows, kAcrossRows, kWholeWords, kOwnRows, kByFour, kByEight, kBySixteen };
struct Reading {
  std::int32_t width, inverse, way, stored;
};

/// The vectors that rows of several threads are read by, if they lie at multiples of one.
std::optional<ReadingWay> vectors_of(const Sort& call, const Rows& rows) {
  const std::int64_t element = size_of(call.dtype);
  for (const auto& [way, bytes] : {std::pair{kBySixteen, 16}, {kByEight, 8}, {kByFour, 4}}) {
    if (bytes < element || rows.length * element % bytes != 0 ||
        reinterpret_cast<std::uintptr_t>(call.in.data) % static_cast<std::uintptr_t>(bytes) != 0)
      continue;
    if (std::all_of(rows.axes.strides, rows.axes.strides + rows.axes.rank,
                    [&](std::int64_t stride) { return stride * element % bytes == 0; }))
      return way;
  }
  return std::nullopt;
}

/// Whether threads read and write whole rows of their own, which are adjacent, by vectors. Of longer ones
/// each access of a warp would be to parts of many lines.
bool has_own_rows(const Sort& call, const Rows& rows) {
  constexpr std::int64_t kMostBytes = 32;
  constexpr std::uintptr_t kAccess = 16;  // bytes
  const Outs to(call);
  return std::has_single_bit(static_cast<std::uint64_t>(rows.length)) && rows.kept == rows.length &&
         rows.length * size_of(call.dtype) <= kMostBytes && rows.inner == 1 && to.out &&
         to.out != call.positions && !to.values &&
         (reinterpret_cast<std::uintptr_t>(call.in.data) | reinterpret_cast<std::uintptr_t>(to.out)) %
                 kAccess ==
             0;
}

/// Rows, `together` of them a block; `several`: threads a row; `runs`: what is sorted is merged yet.
Reading reading_of(const Sort& call, const Rows& rows, std::int64_t width, std::int64_t together,
                   bool several, bool runs) {
  Reading r;
  r.width = static_cast<std::int32_t>(width);
  r.inverse = static_cast<std::int32_t>(
      static_cast<std::uint32_t>(std::min<std::int64_t>((std::int64_t{1} << 32) / width, 0xffffffff)));
  const std::int64_t element = size_of(call.dtype), word = std::max<std::int64_t>(4, element);
  const int last = rows.axes.rank - 1;
  const bool adjacent = rows.length == width && (rows.stride == 1 || width == 1) && last <= 0 &&
                        (last < 0 || rows.axes.strides[0] == width);
  const bool whole =
      reinterpret_cast<std::uintptr_t>(call.in.data) % static_cast<std::uintptr_t>(word) == 0 &&
      together * width * element % word == 0;
  // Across, where the same element of the next row is nearer than the next element of a row.
  const bool across = last >= 0 && std::abs(rows.axes.strides[last]) < std::abs(rows.stride);
  r.way = adjacent && whole ? kWholeWords : across ? kAcrossRows : kAlongRows;
  if (adjacent && !several && !runs && has_own_rows(call, rows)) r.way = kOwnRows;
  r.stored = 0;
  if (!several || rows.stride != 1) return r;
  const auto vectors = vectors_of(call, rows);
  if (!vectors) return r;
  r.way = *vectors;
  const Outs to(call);
  // Positions are of so many bytes that lanes would store far apart.
  if (runs || rows.inner != 1 || !to.out || to.out == call.positions) return r;
  r.stored = 1;
  for (const std::int32_t wide : {16, 8, 4})
    if (wide > r.stored && rows.kept * element % wide == 0 &&
        reinterpret_cast<std::uintptr_t>(to.out) % static_cast<std::uintptr_t>(wide) == 0)
      r.stored = wide;
  return r;
}

/// Sorts tiles: to `runs`, `distance` items apart, or null to the results.
void sort_tiles(const Sort& call, Rows rows, const Items& items, Function kernel, Stream stream, void* runs,
                std::int64_t tiles, std::int64_t distance) {
  constexpr std::int64_t kWarp = 32;
  const std::int64_t width = std::min(rows.length, items.tile), units = rows.count * tiles;
  std::int32_t log_padded = std::bit_width(static_cast<std::uint64_t>(width - 1));
  const std::int64_t padded = std::int64_t{1} << log_padded, sets = items.paired ? 2 : 1,
                     slots = items.of_length > 0 ? items.of_length : padded;  // of a row
  // Smaller blocks where there would be too few for the device.
  const std::int64_t wanted = std::int64_t{2} * device(device_of(stream)).sm_count;
  std::int64_t threads = items.threads;
  while (threads > kWarp && threads * items.by_thread / 2 >= slots &&
         units * slots < wanted * sets * threads * items.by_thread)
    threads /= 2;
  const std::int64_t together = sets * threads * items.by_thread / slots;
  std::int32_t log_rows = std::bit_width(static_cast<std::uint64_t>(together)) - 1;
  const auto kept = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows.kept)));
  auto kept_threads = static_cast<std::int32_t>(std::clamp<std::int64_t>(
      kept / items.by_thread, 1, std::max<std::int64_t>(padded / items.by_thread, 1)));
  Reading reading = reading_of(call, rows, width, together, slots > items.by_thread, runs != nullptr);
  Outs to(call);
  const void* in = call.in.data;
  void* params[] = {&runs,     &to.out,   &in,           &rows,    &tiles,    &log_padded,
                    &distance, &log_rows, &kept_threads, &reading, &to.values};
  LaunchShape shape;
  shape.grid[0] = static_cast<std::uint32_t>(ceil_div(units, together));
  shape.block[0] = static_cast<std::uint32_t>(threads);
  launch(kernel, shape, stream, params);
}

/// By tiles, and merging.
void sort_by_merging(const Sort& call, Rows rows, const Items& items, const std::vector<Function>& kernels,
                     Stream stream) {
  // Runs of `span` elements, `distance` items apart, `runs` in a row.
  std::int64_t span = items.tile, runs = ceil_div(rows.length, span), distance = std::min(rows.kept, span);
  std::int64_t most = 0;  // items of a row that there are memory's places for
  for (std::int64_t r = runs, s = span; r > 1; r = ceil_div(r, 2), s *= 2)
    most = std::max(most, r * std::min(rows.kept, s));
  const auto bytes = static_cast<std::uint64_t>(rows.count * most * items.bytes);
  std::optional<Workspace> from, to;
  if (runs > 1) from.emplace(bytes, stream);
  if (runs > 2) to.emplace(bytes, stream);

  Outs results(call);
  const void* in = call.in.data;
  void* made = from ? from->data() : nullptr;
  sort_tiles(call, rows, items, kernels[kSortTiles], stream, made, runs, distance);

  void* next = to ? to->data() : nullptr;
  while (runs > 1) {
    std::int64_t after = ceil_div(runs, 2), apart = std::min(rows.kept, 2 * span);
    void* target = after == 1 ? nullptr : next;
    void* params[] = {&target,   &results.out, &made,  &rows,           &span, &runs,
                      &distance, &after,       &apart, &results.values, &in};
    launch(kernels[kMergeRuns], blocks(rows.count * after * ceil_div(apart, kChunk)), stream, params);
    std::swap(made, next);
    span *= 2;
    runs = after;
    distance = apart;
  }
}

void select_first(const Sort& call, Rows rows, Function kernel, Stream stream) {
  Outs to(call);
  const void* in = call.in.data;
  void* params[] = {&to.out, &in, &rows, &to.values};
  launch(kernel, blocks(ceil_div(rows.count, kThreads / kLanes)), stream, params);
}

void sort_by_radix(const Sort& call, Rows rows, const Items& items, const std::vector<Function>& kernels,
                   Stream stream) {
  constexpr std::int64_t kDigits = 256;
  std::int64_t chunks = ceil_div(rows.length, kThreads * items.moved_by_thread());
  const std::int64_t counters = rows.count * items.passes * kDigits, states = rows.count * chunks * kDigits;
  std::int64_t vectors = ceil_div(counters + items.passes * (states + 1), 4);
  const Workspace memory(static_cast<std::uint64_t>(vectors) * 16, stream);
  const auto bytes = static_cast<std::uint64_t>(rows.count * rows.length * items.bytes);
  std::optional<Workspace> one, other;
  if (items.passes > 1) one.emplace(bytes, stream);
  if (items.passes > 2) other.emplace(bytes, stream);

  std::uint32_t* counts = reinterpret_cast<std::uint32_t*>(memory.data());
  void* clear_params[] = {&counts, &vectors};
  launch(kernels[kClear], thread_each(vectors), stream, clear_params);
  const void* in = call.in.data;
  void* count_params[] = {&counts, &in, &rows};
  launch(kernels[kCountDigits], blocks(rows.count * ceil_div(rows.length, kCounted)), stream, count_params);

  LaunchShape shape;
  shape.grid[0] = static_cast<std::uint32_t>(rows.count * chunks);
  shape.block[0] = kThreads;
  Outs results(call);
  void* from = nullptr;
  for (int pass = 0; pass < items.passes; ++pass) {
    const bool last = pass + 1 == items.passes;
    void* to = last ? nullptr : pass % 2 == 0 ? one->data() : other->data();
    std::uint32_t* state = counts + counters + pass * states;
    std::uint32_t* next = counts + counters + items.passes * states + pass;
    void* params[] = {&to,    &results.out, &from,   &in,   &rows,          &counts,
                      &state, &next,        &chunks, &pass, &results.values};
    launch(kernels[kSortByDigit], shape, stream, params);
    from = to;
  }
}

}  // namespace

std::string sort_source(const Sort& call, bool halves) {
  namespace texts = codegen::templates;
  const Items items(call, halves);
  const std::string shared = cat(template_prologue(), "typedef ", codegen::cuda_memory_type(call.dtype),
                                 " Element;\n#define KILN_ORDER ", items.order,
                                 "\nconstexpr bool kValues = ", Outs(call).values ? "true" : "false", ";\n");
  const std::string tile =
      cat("constexpr int kEach = ", items.by_thread, ", kFirst = ", items.first,
          ";\nconstexpr bool kPaired = ", items.paired ? "true" : "false",
          ";\nconstexpr int kTileThreads = ", items.threads, ", kLength = ", items.of_length, ";\n",
          texts::memory, texts::sort, texts::sort_pairs, texts::sort_memory, texts::sort_tiles);
  switch (items.way) {
    case Items::Way::Tiles: return shared + tile;
    case Items::Way::Merge: return cat(shared, tile, texts::sort_merge);
    case Items::Way::Select: return cat(shared, texts::sort, texts::sort_select);
    case Items::Way::Radix: break;
  }
  return cat(shared, "constexpr int kPerThread = ", items.moved_by_thread(), ", kCounted = ", kCounted, ";\n",
             texts::sort, texts::reduce, texts::scan, texts::sort_radix);
}

library::Variants sort_choices(Sort call, int major) {
  library::Variants out;
  call.choices.collect(&out);
  (void)Items(call, major >= kHopper);
  return out;
}

void sort(const Sort& call, Stream stream) {
  Rows rows;
  rows.axes = joined_axes(call.in, call.axis);
  for (int a = 0; a < call.in.rank; ++a) {
    if (a != call.axis) rows.count *= call.in.dims[a];
    if (a > call.axis) rows.inner *= call.in.dims[a];
  }
  rows.length = call.in.dims[call.axis];
  rows.stride = call.in.strides[call.axis];
  rows.kept = call.kept;
  rows.descending = call.descending;
  if (rows.count == 0 || rows.kept == 0) return;

  const bool halves = device(device_of(stream)).major >= kHopper;
  const Items items(call, halves);
  const auto kernels = [&](const char* way,
                           std::span<const char* const> symbols) -> const std::vector<Function>& {
    const std::string name =
        cat("sort_", codegen::cuda_memory_type(call.dtype), '_', items.order, way, '_', items.first,
            Outs(call).values ? "_values" : "", items.paired ? "_pairs_" : "_", items.by_thread,
            items.of_length > 0 ? cat("_of_", items.of_length) : "");
    return template_kernels(device_of(stream), name, symbols, [&] { return sort_source(call, halves); });
  };
  switch (items.way) {
    case Items::Way::Tiles:
      return sort_by_merging(call, rows, items, kernels("", std::span(kMergeSymbols).first(1)), stream);
    case Items::Way::Select: return select_first(call, rows, kernels("_first", kSelectSymbols)[0], stream);
    case Items::Way::Merge:
      return sort_by_merging(call, rows, items, kernels("_merged", kMergeSymbols), stream);
    case Items::Way::Radix:
      return sort_by_radix(call, rows, items, kernels("_by_digit", kRadixSymbols), stream);
  }
}

}  // namespace kiln::cuda
