#include "library/cuda/scatter.h"

#include "codegen/cuda/cuda_expr.h"
#include "device/cuda/copy.h"
#include "device/cuda/driver.h"
#include "device/cuda/strided_copy.h"
#include "device/cuda/template_kernels.h"
#include "device/cuda/workspace.h"
#include "kernels_templates.h"
#include "library/cuda/axes.h"
#include "library/cuda/scatter_ways.h"
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

/// Whether the rows of an array are row-major, so that they are found as those of the result are.
bool is_row_major(const library::Array& a) {
  std::int64_t step = 1;
  for (int i = a.rank; i-- > 0;) {
    if (a.dims[i] != 1 && a.strides[i] != step) return false;
    step *= a.dims[i];
  }
  return true;
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

/// Where the kernels of buckets have what they need, in bytes from the memory's first.
struct BucketMemory {
  std::size_t turns, counts, taken, begins, totals, units, places, moved, beside, bytes;
  std::int64_t most_units;

  BucketMemory(const Scatter& call, const Buckets& s) : most_units(s.buckets + s.count / s.piece) {
    std::size_t end = 0;
    const auto take = [&](std::int64_t count, std::int64_t each) {
      constexpr std::size_t kAligned = 256;
      const std::size_t begin = end;
      end += (static_cast<std::size_t>(count * each) + kAligned - 1) / kAligned * kAligned;
      return begin;
    };
    turns = take(2 * s.buckets, 4);
    counts = take(s.buckets, 4);
    taken = take(s.buckets, 4);
    begins = take(s.buckets + 1, 4);
    totals = take(1, 4);
    units = take(2 * most_units, 4);
    places = take(s.count, 2);
    moved = take(s.count * s.width, size_of(call.dtype));
    beside = take(s.rows * s.width, widens(call.dtype, call.how) ? 4 : size_of(call.dtype));
    bytes = end;
  }
};

/// One call's arguments, and launches with them.
struct Writer {
  const Scatter& call;
  Stream stream;
  const std::vector<Function>& kernels;
  std::byte* memory;  // scatter_bytes(call)
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
    const Grid once = places.grid(call, Over::Indices);
    claims = memory;
    if (places.slots <= once.count)  // fewer writes than by index, and none waits for another
      fill(memory, 0, 4, static_cast<std::uint64_t>(places.slots) * 2, stream);
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
    const std::int64_t wide = whole(16) ? 16 : whole(8) ? 8 : size;  // bytes that a thread reads at once
    const bool vectors = wide == 16, pairs = wide == 8;
    const std::int64_t lanes = s.width * size / wide, sms = device(device_of(stream)).sm_count,
                       blocks = kManyBlocks * sms;
    while (s.log_team < 5 && std::int64_t{1} << s.log_team < lanes) ++s.log_team;
    s.few = few_values(s.rows << s.log_team, sms);
    while (s.log_team < kLogBlock && std::int64_t{1} << s.log_team < lanes &&
           s.rows << s.log_team < kBusy * sms)
      ++s.log_team;  // few rows, which would take long one part after the other
    const std::int64_t most = ceil_div(s.count, s.few + 1);
    const std::int64_t wanted = ceil_div(blocks, std::min(s.rows, most));  // parts of a row's columns
    s.chunks = static_cast<std::int32_t>(
        std::max(ceil_div(lanes, 32), std::min(wanted, lanes / (vectors ? kLeastVectors : kLeastElements))));
    auto* const words = reinterpret_cast<std::uint32_t*>(memory);
    std::uint32_t *spans = words, *totals = spans + 2 * s.rows, *counted = totals + 2,
                  *many = counted + s.rows, *ranks = many + s.rows, *list = ranks + s.count;
    fill(reinterpret_cast<std::byte*>(totals), 0, 4, static_cast<std::uint64_t>(s.rows) + 2, stream);
    if (s.rows <= kFewRows && s.count > kValuesOfRow * s.rows)
      count_few_rows(s, counted, ranks);
    else
      launch(kCountRows, s.count, {&counted, &ranks, &indices, &s});
    launch(kBeginRows, ceil_div(s.rows, kListed) * 256, {&spans, &counted, &many, &totals, &s});
    launch(kListValues, s.count, {&list, &spans, &ranks, &indices, &s});
    launch(vectors ? kRowsByVectors
           : pairs ? kRowsByPairs
                   : kRows,
           s.rows << s.log_team, {&out, &x, &values, &list, &spans, &s});
    launch(vectors ? kManyByVectors
           : pairs ? kManyByPairs
                   : kMany,
           std::min(blocks, std::min(s.rows, most) * s.chunks) * 256,
           {&out, &x, &values, &list, &spans, &many, &totals, &s});
  }

  void count_few_rows(const RowScatter& s, const std::uint32_t* counted, const std::uint32_t* ranks) const {
    const std::int64_t least = std::max(kLeastUnit, kValuesPerPlace * s.rows),
                       chunk = std::max(least, ceil_div(s.count, 2 * device(device_of(stream)).sm_count));
    LaunchShape shape;
    shape.grid[0] = static_cast<std::uint32_t>(ceil_div(s.count, chunk));
    shape.block[0] = static_cast<std::uint32_t>(kCounting);
    void* params[] = {&counted, &ranks, const_cast<void**>(&indices), const_cast<RowScatter*>(&s),
                      const_cast<std::int64_t*>(&chunk)};
    cuda::launch(kernels[kCountFewRows], shape, stream, params);
  }

  /// Pre: Way::Bucketed. x is read from its own memory.
  void add_buckets(const void* x) const {
    const Buckets s(call);
    const BucketMemory m(call, s);
    const auto at = [&](std::size_t offset) -> const void* { return memory + offset; };
    const void *turns = at(m.turns), *counts = at(m.counts), *taken = at(m.taken), *begins = at(m.begins),
               *totals = at(m.totals), *units = at(m.units), *places_of = at(m.places), *moved = at(m.moved),
               *beside = at(m.beside);
    fill(memory, 0, 4, (m.taken - m.turns) / 4, stream);
    const std::int64_t blocks = std::int64_t{2} * device(device_of(stream)).sm_count;
    launch_blocks(kCountBuckets, std::min(blocks, ceil_div(s.count, kMoved)), kMoving, 0,
                  {&counts, &indices, &s});
    launch_blocks(kBeginBuckets, 1, kMoving, 0, {&begins, &taken, &units, &totals, &counts, &s});
    // Rows are moved by the widest words that all of them are whole ones of.
    Buckets words = s;
    int kernel = kMoveElements;
    for (const auto& [k, bytes] : {std::pair{kMoveVectors, 16}, {kMoveWords, 4}}) {
      const std::int64_t size = size_of(call.dtype);
      if (kernel != kMoveElements || s.width * size % bytes != 0 || s.value_stride * size % bytes != 0 ||
          reinterpret_cast<std::uintptr_t>(values) % static_cast<std::uintptr_t>(bytes) != 0)
        continue;
      kernel = k;
      words.width = s.width * size / bytes;
      words.value_stride = s.value_stride * size / bytes;
    }
    words.find_inverse();
    constexpr std::int64_t kMovingBytes = kMoved * 6 + kMostBuckets * 8;
    launch_blocks(kernel, ceil_div(s.count, kMoved), kMoving, kMovingBytes,
                  {&places_of, &moved, &taken, &indices, &values, &words});
    launch_blocks(kAddBuckets, m.most_units, kAdding, s.sum_bytes(call),
                  {&out, &x, &beside, &places_of, &moved, &begins, &units, &totals, &turns, &s});
  }

  /// Pre: adds_rows. x is read from its own memory where sums lie beside the result.
  void add_rows(const void* x) const {
    const RowSums s(call);
    const auto start = reinterpret_cast<std::uintptr_t>(values);
    const bool whole = s.width % 4 == 0 && s.value_stride % 4 == 0 &&
                       start % static_cast<std::uintptr_t>(4 * size_of(call.dtype)) == 0,
               beside = sums_beside(call);
    const void* sums = beside ? memory : out;
    if (beside) launch(kBeginSums, s.rows * s.vectors, {&sums, &x, &s});
    if (!add_columns(sums, s) && !add_here(sums, s, whole))
      launch(s.width == 1   ? kAddRowsByOnes
             : s.width == 2 ? kAddRowsByPairs
             : whole        ? kAddWholeRows
                            : kAddRowsByFours,
             ceil_div(s.count * s.vectors, kMetAtOnce), {&sums, &values, &indices, &s});
    if (beside) launch(kEndSums, s.rows * s.vectors, {&out, &x, &sums, &s});
  }

  /// By blocks that have columns of few rows; false: rows are not few, and nothing is done.
  bool add_columns(const void* sums, const RowSums& s) const {
    const DeviceInfo& d = device(device_of(stream));
    for (const auto& [lanes, kernel] :
         {std::pair{4, kAddColumnsByFours}, {2, kAddColumnsByPairs}, {1, kAddColumnsByOnes}}) {
      if (s.value_stride % lanes != 0 ||
          reinterpret_cast<std::uintptr_t>(values) % static_cast<std::uintptr_t>(lanes * size_of(call.dtype)))
        continue;
      std::optional<ColumnUnits> units = column_units(s, lanes, d.sm_count);
      if (!units || column_bytes(s, lanes) > d.shared_per_block_optin) continue;
      launch_blocks(kernel, ceil_div(s.count, units->chunk) * units->blocks, kColumnThreads,
                    column_bytes(s, lanes), {&sums, &values, &indices, &s, &*units});
      return true;
    }
    return false;
  }
  /// By blocks that have sums of all rows; `whole`: the values' rows are vectors of four. False: rows are not
  /// so few, and nothing is done.
  bool add_here(const void* sums, const RowSums& s, bool whole) const {
    const DeviceInfo& d = device(device_of(stream));
    if (!s.here() || s.bytes() > d.shared_per_block_optin) return false;
    const std::int64_t blocks = std::clamp<std::int64_t>(kMostHereBytes / s.bytes(), 1, 2) * d.sm_count;
    const auto chunk = static_cast<std::int32_t>(ceil_div(s.count, blocks));
    const int kernel = s.width == 1   ? kAddRowsHereByOnes
                       : s.width == 2 ? kAddRowsHereByPairs
                       : whole        ? kAddWholeRowsHere
                                      : kAddRowsHereByFours;
    launch_blocks(kernel, ceil_div(s.count, chunk), kHere, s.bytes(), {&sums, &values, &indices, &s, &chunk});
    return true;
  }
  void launch_blocks(int k, std::int64_t blocks, std::int64_t threads, std::int64_t shared,
                     std::initializer_list<const void*> arguments) const {
    const Function& kernel = kernels[static_cast<std::size_t>(k)];
    LaunchShape shape;
    shape.grid[0] = static_cast<std::uint32_t>(blocks);
    shape.block[0] = static_cast<std::uint32_t>(threads);
    shape.dynamic_shared = static_cast<std::uint32_t>(shared);
    allow_dynamic_shared(kernel, static_cast<int>(shared));
    void* params[10];
    std::transform(arguments.begin(), arguments.end(), params,
                   [](const void* a) { return const_cast<void*>(a); });
    cuda::launch(kernel, shape, stream, params);
  }

  /// x is read from its own memory where the result is made by ranges.
  void combine(const void* x) const {
    if (!widens(call.dtype, call.how)) return combine_into(out, x);
    const Grid all = places.grid(call, Over::All);
    void* wide = memory;
    const std::int64_t count = places.places;
    const bool each = count <= all.count;
    each ? launch(kWidenAll, count, {&wide, &out, &count})
         : launch(kWiden, all.count, {&wide, &out, &indices, &all});
    combine_into(wide, wide);
    each ? launch(kNarrowAll, count, {&out, &wide, &count})
         : launch(kNarrow, all.count, {&out, &wide, &indices, &all});
  }

  void combine_into(void* kept, const void* x) const {
    Grid all = places.grid(call, Over::All);
    if (meets_privately(call)) return combine_privately(kept, all);
    const bool vectors = adds_words(call) && by_vectors(all, kept);
    const std::int64_t ranges = ranges_of(call, device(device_of(stream)).l2_bytes),
                       row = places.places / all.extent * size_of(call.dtype);
    for (std::int64_t r = 0; ranges > 1 && r < ranges; ++r) {
      const std::int64_t low = all.extent * r / ranges, high = all.extent * (r + 1) / ranges;
      if (x != kept)  // the second cache still has it when values meet it
        copy_on_device(static_cast<std::byte*>(kept) + low * row,
                       static_cast<const std::byte*>(x) + low * row,
                       static_cast<std::uint64_t>((high - low) * row), stream);
      launch(vectors ? kCombineVectorsRange : kCombineRange, ceil_div(all.count, kMetAtOnce),
             {&kept, &values, &indices, &all, &low, &high});
    }
    if (ranges > 1) return;
    const std::int64_t width = row_width(call), rows = call.x.dims[0], count = call.values.dims[0] * width;
    if (!vectors && width > 1 && call.values.strides[0] == width && count < std::int64_t{1} << 31) {
      const auto whole = static_cast<std::int32_t>(width), all_of = static_cast<std::int32_t>(count);
      const auto inverse = static_cast<std::uint32_t>((std::int64_t{1} << 32) / width);
      return launch(kCombineWholeRows, ceil_div(count, kMetAtOnce),
                    {&kept, &values, &indices, &rows, &whole, &inverse, &all_of});
    }
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

std::string scatter_source(const Scatter& call, std::uint64_t l2_bytes) {
  namespace texts = codegen::templates;
  std::string text;
  switch (way_of(call, l2_bytes)) {
    case Way::Set: text = texts::scatter_set; break;
    case Way::Ordered: text = texts::scatter_ordered; break;
    case Way::Counted: text = cat(texts::scatter_atomic, texts::memory, texts::scatter_count); break;
    case Way::Summed:
      text = cat(texts::memory, texts::scatter_sums, texts::scatter_columns, texts::scatter_here);
      break;
    case Way::Listed: text = cat(texts::memory, texts::scatter_rows); break;
    case Way::Bucketed: text = cat(texts::scatter_atomic, texts::scatter_buckets); break;
    case Way::Privately:
      text = cat(texts::scatter_atomic, texts::scatter_private,
                 widens(call.dtype, call.how) ? texts::scatter_widen : "");
      break;
    case Way::Apart:
      text = cat(texts::scatter_atomic,
                 adds_words(call) || widens(call.dtype, call.how) ? texts::scatter_widen : "",
                 adds_words(call) ? cat(texts::memory, texts::scatter_vectors) : "");
      break;
  }
  return cat(template_prologue(), "typedef ", codegen::cuda_memory_type(worked_in(call.dtype, call.how)),
             " Element;\ntypedef ", codegen::cuda_memory_type(call.index_dtype),
             " Index;\nconstexpr int kHow = ", static_cast<int>(call.how), ";\n", texts::scatter, text);
}

bool is_recordable(const Scatter& call, std::uint64_t l2_bytes) {
  return way_of(call, l2_bytes) != Way::Ordered;
}

std::size_t scatter_bytes(const Scatter& call, std::uint64_t l2_bytes) {
  if (count_of(call.x) == 0 || count_of(call.values) == 0) return 0;
  const Places places(call);
  const auto bytes = [](std::int64_t count, std::int64_t each) {
    return static_cast<std::size_t>(count * each);
  };
  switch (way_of(call, l2_bytes)) {
    case Way::Set: return call.values.dims[call.axis] == 1 ? 0 : bytes(places.slots, 8);
    case Way::Ordered:
    case Way::Counted: return 0;
    case Way::Summed: {
      const RowSums s(call);
      return sums_beside(call) ? bytes(s.rows * s.pitch, sizeof(float)) : 0;
    }
    case Way::Bucketed: return BucketMemory(call, Buckets(call)).bytes;
    case Way::Listed: return bytes(4 * call.x.dims[0] + 2 * call.values.dims[0] + 2, 4);
    case Way::Privately:
    case Way::Apart: return widens(call.dtype, call.how) ? bytes(places.places, sizeof(float)) : 0;
  }
  return 0;
}

void scatter(const Scatter& call, Stream stream, std::byte* memory) {
  if (count_of(call.x) == 0) return;
  const std::uint64_t l2_bytes = device(device_of(stream)).l2_bytes;
  const Way way = way_of(call, l2_bytes);
  // What takes rows reads x itself.
  const bool reads_x =
      count_of(call.values) > 0 && is_row_major(call.x) &&
      (way == Way::Listed || way == Way::Bucketed || (way == Way::Summed && sums_beside(call)) ||
       (way == Way::Apart && meets_in_ranges(call, l2_bytes)));
  if (!reads_x) copy_x(call, stream);
  if (count_of(call.values) == 0) return;
  constexpr const char* kNames[] = {"_",      "_ordered_", "_count_",   "_sums_",
                                    "_rows_", "_buckets_", "_private_", "_"};
  const std::string name = cat("scatter_", static_cast<int>(call.how), kNames[static_cast<std::size_t>(way)],
                               codegen::cuda_memory_type(worked_in(call.dtype, call.how)), '_',
                               codegen::cuda_memory_type(call.index_dtype));
  const Writer writer{call, stream,
                      template_kernels(device_of(stream), name, symbols_of(call, way),
                                       [&] { return scatter_source(call, l2_bytes); }),
                      memory};
  const void* const x = reads_x ? call.x.data : call.out;
  switch (way) {
    case Way::Set: return writer.set();
    case Way::Ordered: return writer.combine_in_order();
    case Way::Counted: return writer.count();
    case Way::Summed: return writer.add_rows(x);
    case Way::Listed: return writer.combine_rows(x);
    case Way::Bucketed: return writer.add_buckets(x);
    case Way::Privately:
    case Way::Apart: return writer.combine(x);
  }
}

}  // namespace kiln::cuda
