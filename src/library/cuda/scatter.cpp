#include "library/cuda/scatter.h"

#include "codegen/cuda/cuda_expr.h"
#include "device/cuda/copy.h"
#include "device/cuda/driver.h"
#include "device/cuda/strided_copy.h"
#include "device/cuda/template_kernels.h"
#include "device/cuda/workspace.h"
#include "kernels_templates.h"
#include "library/cuda/axes.h"
#include "library/cuda/sort.h"
#include "support/check.h"

#include <algorithm>
#include <cstdlib>

namespace kiln::cuda {
namespace {

using library::Array;
using library::Scatter;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// The kernels' Grid.
struct Grid {
  std::int32_t rank = 0, axis = 0;
  std::int64_t count = 1;
  std::int64_t dims[kMaxRank] = {}, value[kMaxRank] = {}, index[kMaxRank] = {}, place[kMaxRank] = {},
               slot[kMaxRank] = {};
  std::int64_t extent = 0, place_step = 0, slot_step = 0;
  std::int32_t narrow = 0;
  std::uint32_t inverses[3] = {};

  /// Once the axes are known: whether few axes have small numbers.
  void find_narrow() {
    constexpr std::int64_t kNarrow = std::int64_t{1} << 31;
    narrow = rank <= 3 && count < kNarrow;
    for (const std::int64_t* strides : {value, index, place, slot}) {
      std::int64_t reach = 0;
      for (int a = 0; a < rank; ++a) reach += std::abs(strides[a]) * dims[a];
      narrow = narrow && reach < kNarrow;
    }
    for (int a = 0; narrow && a < rank; ++a)
      inverses[a] = static_cast<std::uint32_t>(
          std::min<std::int64_t>((std::int64_t{1} << 32) / std::max<std::int64_t>(dims[a], 1), 0xffffffff));
  }
};
static_assert(sizeof(Grid) == 8 * (2 + 5 * kMaxRank + 3) + 16);

/// Which axes of the values a grid goes over.
enum class Over { All, Indices, Repetitions };

/// All that one call's kernels share.
struct Places {
  std::int64_t place_strides[kMaxRank] = {}, slot_strides[kMaxRank] = {};
  std::int64_t places = 1, slots = 1;

  explicit Places(const Scatter& call) {
    for (int a = call.x.rank; a-- > 0;) {
      place_strides[a] = places;
      places *= call.x.dims[a];
      if (repeats(call, a)) continue;
      slot_strides[a] = slots;
      slots *= call.x.dims[a];
    }
  }
  /// Whether indices are the same all along an axis other than theirs.
  static bool repeats(const Scatter& call, int a) { return a != call.axis && call.indices.strides[a] == 0; }

  Grid grid(const Scatter& call, Over over) const {
    Grid g;
    g.axis = -1;
    g.extent = call.x.dims[call.axis];
    g.place_step = place_strides[call.axis];
    g.slot_step = slot_strides[call.axis];
    for (int a = 0; a < call.values.rank; ++a) {
      const bool chosen = a == call.axis;
      if (over != Over::All && repeats(call, a) != (over == Over::Repetitions)) continue;
      if (call.values.dims[a] == 1 && !chosen) continue;
      g.count *= call.values.dims[a];
      const std::int64_t dim = call.values.dims[a], value = call.values.strides[a],
                         index = call.indices.strides[a], place = chosen ? 0 : place_strides[a],
                         slot = chosen ? 0 : slot_strides[a];
      const int last = g.rank - 1;
      const bool joins = last >= 0 && !chosen && last != g.axis && g.value[last] == value * dim &&
                         g.index[last] == index * dim && g.place[last] == place * dim &&
                         g.slot[last] == slot * dim;
      const int to = joins ? last : g.rank++;
      g.dims[to] = joins ? g.dims[to] * dim : dim;
      g.value[to] = value;
      g.index[to] = index;
      g.place[to] = place;
      g.slot[to] = slot;
      if (chosen) g.axis = to;
    }
    g.find_narrow();
    return g;
  }
};

bool sums(Combine how) { return how == Combine::Add || how == Combine::Multiply; }

/// One dtype for all whose kernels are the same: bits that are moved, integers that wrap.
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

/// Whether values are added to elements that are kept in 32 bits.
bool adds_words(const Scatter& call) {
  return call.how == Combine::Add && (widens(call.dtype, call.how) || size_of(call.dtype) == 4);
}

/// The kernels of a source, by the way it goes about it.
enum SetKernel { kClearClaims, kClaim, kSet };
constexpr const char* kSetSymbols[] = {"clear_claims", "claim", "set"};
enum AtomicKernel { kCombine, kWiden, kNarrow, kWidenAll, kNarrowAll, kCombineVectors };
constexpr const char* kAtomicSymbols[] = {"combine",   "widen",      "narrow",
                                          "widen_all", "narrow_all", "combine_vectors"};
enum PrivateKernel { kCombinePrivately = 0 };  // in the place of kCombine; the others are the same
enum CountKernel { kCountPlaces };
constexpr const char* kCountSymbols[] = {"count_places"};
constexpr const char* kPrivateSymbols[] = {"combine_privately", "widen", "narrow", "widen_all", "narrow_all"};
enum OrderedKernel { kNumberSlots, kCombineInOrder };
constexpr const char* kOrderedSymbols[] = {"number_slots", "combine_in_order"};

bool in_order(const Scatter& call) { return call.ordered && is_float(call.dtype) && sums(call.how); }

/// The kernels' Units: groups of values, each with the places that its values alone may reach.
struct Units {
  std::int64_t count = 0, chunks = 1, values = 0, chunk = 0, places = 0, all_places = 0;
  std::int32_t log_copies = 0, unused = 0;
};
static_assert(sizeof(Units) == 7 * 8);

constexpr std::int64_t kMetAtOnce = 4;            // values of a thread: the kernels'
constexpr std::int64_t kPrivateBytes = 32 << 10;  // of accumulators in a block's shared memory
constexpr std::int64_t kFewestPrivately = 4096;   // values; fewer meet in the output as quickly
constexpr std::int64_t kLeastUnit = 4096;         // values
constexpr std::int64_t kValuesPerPlace = 4;       // at least, or clearing and combining take the gain
constexpr std::int64_t kGroupValues = 16384;      // groups are joined up to so many values
constexpr int kMostLogCopies = 5;                 // a copy for each lane

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

/// Whether many values meet in places so few that a block has accumulators for those of a group.
bool meets_privately(const Scatter& call) {
  if (call.how == Combine::Set || in_order(call)) return false;
  const Groups groups(call);
  return groups.places <= accumulators(call) && groups.values >= kValuesPerPlace * groups.places &&
         groups.count * groups.values >= kFewestPrivately;
}

/// The kernels' CountUnits.
struct CountUnits {
  std::int64_t count = 0, chunk = 0, places = 0, range = 0;
  std::int32_t ranges = 1, log_copies = 0;
};
static_assert(sizeof(CountUnits) == 5 * 8);

constexpr std::int64_t kFewCounters = 1 << 13;   // of a block, of which several share a multiprocessor, …
constexpr std::int64_t kMostCounters = 1 << 15;  // … and of one that has it alone
constexpr std::int64_t kMostRanges = 4;          // times that indices are read

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

/// Pre: counts.
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

/// Pre: meets_privately.
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

/// The kernels' RowScatter.
struct RowScatter {
  std::int64_t rows = 0, count = 0, width = 1, value_stride = 0;
  std::int32_t log_team = 0, unused = 0;
};
static_assert(sizeof(RowScatter) == 5 * 8);

enum RowKernel { kCountRows, kBeginRows, kListValues, kRowsByVectors, kManyByVectors, kRows, kMany };
constexpr const char* kRowSymbols[] = {"count_rows",           "begin_rows",
                                       "list_values",          "combine_rows_vectors",
                                       "combine_many_vectors", "combine_rows_elements",
                                       "combine_many_elements"};
constexpr std::int64_t kRowBytes = 16;      // shorter rows meet as quickly by atomic operations
constexpr std::int64_t kValuesOfRow = 8;    // on average, at most: counting would wait for the same counters
constexpr std::int64_t kFewestRows = 4096;  // of values
constexpr std::int64_t kManyValues = 256;   // of a row that a block takes: the kernels'
constexpr std::int64_t kListed = 1024;      // rows whose places in the list a block finds: the kernels'
constexpr std::int64_t kMostListed = std::int64_t{1} << 31;

/// Whether indices choose whole rows along the first axis, which lie in memory one after the other.
bool takes_rows(const Scatter& call) {
  if (call.how == Combine::Set || call.axis != 0 || in_order(call) || counts(call) || meets_privately(call))
    return false;
  std::int64_t width = 1;
  for (int a = call.x.rank; a-- > 1;) {
    if (call.x.dims[a] == 1) continue;
    if (call.indices.strides[a] != 0 || call.values.strides[a] != width ||
        call.values.dims[a] != call.x.dims[a])
      return false;
    width *= call.x.dims[a];
  }
  const std::int64_t count = call.values.dims[0], rows = call.x.dims[0];
  return width * size_of(call.dtype) >= kRowBytes && count >= kFewestRows && count <= kValuesOfRow * rows &&
         count < kMostListed && rows < kMostListed && call.indices.strides[0] == 1;
}

/// Whether the rows of an array are row-major, so that they are found as those of the result are.
bool is_row_major(const library::Array& a) {
  std::int64_t step = 1;
  for (int i = a.rank; i-- > 0;) {
    if (a.dims[i] != 1 && a.strides[i] != step) return false;
    step *= a.dims[i];
  }
  return true;
}

std::span<const char* const> symbols_of(const Scatter& call) {
  if (call.how == Combine::Set) return kSetSymbols;
  if (in_order(call)) return kOrderedSymbols;
  if (counts(call)) return kCountSymbols;
  if (takes_rows(call)) return kRowSymbols;
  const bool widened = widens(call.dtype, call.how);
  if (meets_privately(call)) return std::span(kPrivateSymbols).first(widened ? 5 : 1);
  return std::span(kAtomicSymbols).first(adds_words(call) ? 6 : widened ? 5 : 1);
}

/// x, row-major, in out.
void copy_x(const Scatter& call, Stream stream) {
  if (call.x.data == call.out) return;
  const Axes axes = joined_axes(call.x);
  StridedCopy copy;
  copy.to = static_cast<std::byte*>(call.out);
  copy.from = static_cast<const std::byte*>(call.x.data);
  copy.rank = axes.rank;
  std::copy_n(axes.dims, axes.rank, copy.extents);
  std::copy_n(axes.strides, axes.rank, copy.strides);
  if (axes.rank == 0 || (axes.rank == 1 && axes.strides[0] == 1))
    copy_on_device(copy.to, copy.from, static_cast<std::uint64_t>(copy.count() * size_of(call.dtype)),
                   stream);
  else
    copy_strided(copy, size_of(call.dtype), stream);
}

/// One call's arguments, and launches with them.
struct Writer {
  const Scatter& call;
  Stream stream;
  const std::vector<Function>& kernels;
  void* out = call.out;
  const void *values = call.values.data, *indices = call.indices.data;
  Places places{call};

  void launch(int k, std::int64_t count, std::initializer_list<const void*> arguments) const {
    void* params[8];
    std::transform(arguments.begin(), arguments.end(), params,
                   [](const void* a) { return const_cast<void*>(a); });
    cuda::launch(kernels[static_cast<std::size_t>(k)], thread_each(count), stream, params);
  }

  void set() const {
    const Grid all = places.grid(call, Over::All);
    const void* claims = nullptr;
    if (call.values.dims[call.axis] == 1)
      return launch(kSet, all.count, {&out, &values, &indices, &claims, &all});
    const Workspace memory(static_cast<std::uint64_t>(places.slots) * 8, stream);
    const Grid once = places.grid(call, Over::Indices);
    claims = memory.data();
    if (places.slots <= once.count)  // fewer writes than by index, and none waits for another
      fill(memory.data(), 0, 4, static_cast<std::uint64_t>(places.slots) * 2, stream);
    else
      launch(kClearClaims, once.count, {&claims, &indices, &once});
    launch(kClaim, once.count, {&claims, &indices, &once});
    launch(kSet, all.count, {&out, &values, &indices, &claims, &all});
  }

  void count() const {
    const CountUnits units = count_units(call, device(device_of(stream)).sm_count);
    const Function& kernel = kernels[kCountPlaces];
    LaunchShape shape;
    shape.grid[0] = static_cast<std::uint32_t>(ceil_div(units.count, units.chunk) * units.ranges);
    shape.block[0] = 1024;
    shape.dynamic_shared = static_cast<std::uint32_t>((units.range << units.log_copies) * 4);
    allow_dynamic_shared(kernel, static_cast<int>(shape.dynamic_shared));
    void* params[] = {const_cast<void**>(&out), const_cast<void**>(&values), const_cast<void**>(&indices),
                      const_cast<CountUnits*>(&units)};
    cuda::launch(kernel, shape, stream, params);
  }

  /// Pre: takes_rows. x is read from its own memory.
  void combine_rows(const void* x) const {
    RowScatter s{call.x.dims[0], call.values.dims[0], places.places / call.x.dims[0], call.values.strides[0]};
    const std::int64_t size = size_of(call.dtype);
    const auto whole = [&](std::int64_t bytes) {
      const auto starts = [&](const void* p) {
        return reinterpret_cast<std::uintptr_t>(p) % static_cast<std::uintptr_t>(bytes) == 0;
      };
      return s.width * size % bytes == 0 && s.value_stride * size % bytes == 0 && starts(x) && starts(out) &&
             starts(values);
    };
    const bool vectors = whole(16);
    const std::int64_t lanes = s.width / (vectors ? 16 / size : 1);
    while (s.log_team < 5 && std::int64_t{1} << s.log_team < lanes) ++s.log_team;
    const Workspace memory(static_cast<std::uint64_t>(4 * s.rows + 2 * s.count + 2) * 4, stream);
    auto* const words = reinterpret_cast<std::uint32_t*>(memory.data());
    std::uint32_t *spans = words, *totals = spans + 2 * s.rows, *counted = totals + 2,
                  *many = counted + s.rows, *ranks = many + s.rows, *list = ranks + s.count;
    fill(reinterpret_cast<std::byte*>(totals), 0, 4, static_cast<std::uint64_t>(s.rows) + 2, stream);
    launch(kCountRows, s.count, {&counted, &ranks, &indices, &s});
    launch(kBeginRows, ceil_div(s.rows, kListed) * 256, {&spans, &counted, &many, &totals, &s});
    launch(kListValues, s.count, {&list, &spans, &ranks, &indices, &s});
    launch(vectors ? kRowsByVectors : kRows, s.rows << s.log_team, {&out, &x, &values, &list, &spans, &s});
    const std::int64_t blocks = std::int64_t{2} * device(device_of(stream)).sm_count;
    launch(vectors ? kManyByVectors : kMany, std::min(blocks, ceil_div(s.count, kManyValues)) * 256,
           {&out, &x, &values, &list, &spans, &many, &totals, &s});
  }

  void combine() const {
    if (!widens(call.dtype, call.how)) return combine_into(out);
    const Grid all = places.grid(call, Over::All);
    const Workspace memory(static_cast<std::uint64_t>(places.places) * sizeof(float), stream);
    void* wide = memory.data();
    const std::int64_t count = places.places;
    const bool each = count <= all.count;
    each ? launch(kWidenAll, count, {&wide, &out, &count})
         : launch(kWiden, all.count, {&wide, &out, &indices, &all});
    combine_into(wide);
    each ? launch(kNarrowAll, count, {&out, &wide, &count})
         : launch(kNarrow, all.count, {&out, &wide, &indices, &all});
  }

  void combine_into(void* kept) const {
    Grid all = places.grid(call, Over::All);
    if (meets_privately(call)) return combine_privately(kept, all);
    const bool vectors = adds_words(call) && by_vectors(all, kept);
    launch(vectors ? kCombineVectors : kCombine, ceil_div(all.count, kMetAtOnce),
           {&kept, &values, &indices, &all});
  }

  void combine_privately(void* kept, const Grid& all) const {
    constexpr std::int64_t kMostBlocks = 1 << 20;
    Units units = units_of(call, device(device_of(stream)).sm_count);
    LaunchShape shape;
    shape.grid[0] = static_cast<std::uint32_t>(std::min(units.count, kMostBlocks));
    shape.block[0] = 512;
    void* params[] = {&kept, const_cast<void**>(&values), const_cast<void**>(&indices),
                      const_cast<Grid*>(&all), &units};
    cuda::launch(kernels[kCombinePrivately], shape, stream, params);
  }

  /// Makes the last axis one over groups of elements, if all of them may be read and written at once.
  bool by_vectors(Grid& g, const void* kept) const {
    constexpr std::int64_t kLanes = 4;
    const int last = g.rank - 1;
    if (last < 0 || last == g.axis || g.index[last] != 0 || g.value[last] != 1 || g.place[last] != 1)
      return false;
    if (g.dims[last] % kLanes || g.place_step % kLanes) return false;
    for (int a = 0; a < last; ++a)
      if (g.value[a] % kLanes || g.place[a] % kLanes) return false;
    const auto starts_at_multiple = [](const void* p, std::int64_t bytes) {
      return reinterpret_cast<std::uintptr_t>(p) % static_cast<std::uintptr_t>(bytes) == 0;
    };
    if (!starts_at_multiple(values, kLanes * size_of(call.dtype)) || !starts_at_multiple(kept, kLanes * 4))
      return false;
    g.dims[last] /= kLanes;
    g.count /= kLanes;
    g.value[last] = g.place[last] = kLanes;
    g.find_narrow();
    return true;
  }

  void combine_in_order() const {
    const Grid once = places.grid(call, Over::Indices), across = places.grid(call, Over::Repetitions);
    const auto bytes = static_cast<std::uint64_t>(once.count) * 8;
    const Workspace slot_memory(bytes, stream), order_memory(bytes, stream);
    const void *slots = slot_memory.data(), *order = order_memory.data();
    launch(kNumberSlots, once.count, {&slots, &indices, &once});
    library::Sort sort;
    sort.dtype = DType::UInt64;
    sort.in.data = slots;
    sort.in.rank = 1;
    sort.in.dims[0] = sort.kept = once.count;
    sort.in.strides[0] = 1;
    sort.by_position = true;
    sort.positions = order_memory.data();
    cuda::sort(sort, stream);
    launch(kCombineInOrder, once.count * across.count,
           {&out, &values, &indices, &slots, &order, &once, &across});
  }
};

}  // namespace

std::string scatter_source(const Scatter& call) {
  namespace texts = codegen::templates;
  const bool counted = counts(call), rows = takes_rows(call),
             alone = !counted && !rows && meets_privately(call),
             vectors = !alone && !counted && !rows && !in_order(call) && adds_words(call),
             beside = vectors || (!in_order(call) && !rows && widens(call.dtype, call.how));
  const char* way = call.how == Combine::Set ? texts::scatter_set
                    : in_order(call)         ? texts::scatter_ordered
                    : rows                   ? texts::memory
                                             : texts::scatter_atomic;
  return cat(template_prologue(), "typedef ", codegen::cuda_memory_type(worked_in(call.dtype, call.how)),
             " Element;\ntypedef ", codegen::cuda_memory_type(call.index_dtype),
             " Index;\nconstexpr int kHow = ", static_cast<int>(call.how), ";\n", texts::scatter, way,
             rows ? texts::scatter_rows : "", counted ? cat(texts::memory, texts::scatter_count) : "",
             alone ? texts::scatter_private : "", beside ? texts::scatter_widen : "",
             vectors ? cat(texts::memory, texts::scatter_vectors) : "");
}

void scatter(const Scatter& call, Stream stream) {
  if (count_of(call.x) == 0) return;
  // What takes rows reads x itself.
  const bool rows = count_of(call.values) > 0 && takes_rows(call), moves = !rows || !is_row_major(call.x);
  if (moves) copy_x(call, stream);
  if (count_of(call.values) == 0) return;
  const std::string way = in_order(call)          ? "_ordered_"
                          : counts(call)          ? "_count_"
                          : rows                  ? "_rows_"
                          : meets_privately(call) ? "_private_"
                                                  : "_";
  const std::string name = cat("scatter_", static_cast<int>(call.how), way,
                               codegen::cuda_memory_type(worked_in(call.dtype, call.how)), '_',
                               codegen::cuda_memory_type(call.index_dtype));
  const Writer writer{call, stream, template_kernels(device_of(stream), name, symbols_of(call), [&] {
                        return scatter_source(call);
                      })};
  if (call.how == Combine::Set)
    writer.set();
  else if (in_order(call))
    writer.combine_in_order();
  else if (counts(call))
    writer.count();
  else if (rows)
    writer.combine_rows(moves ? call.out : call.x.data);
  else
    writer.combine();
}

}  // namespace kiln::cuda
