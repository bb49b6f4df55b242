#include "library/cuda/scatter.h"

#include "codegen/cuda/cuda_expr.h"
#include "device/cuda/copy.h"
#include "device/cuda/strided_copy.h"
#include "device/cuda/template_kernels.h"
#include "device/cuda/workspace.h"
#include "kernels_templates.h"
#include "library/cuda/axes.h"
#include "library/cuda/sort.h"
#include "support/check.h"

#include <algorithm>

namespace kiln::cuda {
namespace {

using library::Array;
using library::Scatter;

/// The kernels' Grid.
struct Grid {
  std::int32_t rank = 0, axis = 0;
  std::int64_t count = 1;
  std::int64_t dims[kMaxRank] = {}, value[kMaxRank] = {}, index[kMaxRank] = {}, place[kMaxRank] = {},
               slot[kMaxRank] = {};
  std::int64_t extent = 0, place_step = 0, slot_step = 0;
};
static_assert(sizeof(Grid) == 8 * (2 + 5 * kMaxRank + 3));

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
enum AtomicKernel { kCombine, kWiden, kNarrow, kCombineVectors };
constexpr const char* kAtomicSymbols[] = {"combine", "widen", "narrow", "combine_vectors"};
enum OrderedKernel { kNumberSlots, kCombineInOrder };
constexpr const char* kOrderedSymbols[] = {"number_slots", "combine_in_order"};

bool in_order(const Scatter& call) { return call.ordered && is_float(call.dtype) && sums(call.how); }

std::span<const char* const> symbols_of(const Scatter& call) {
  if (call.how == Combine::Set) return kSetSymbols;
  if (in_order(call)) return kOrderedSymbols;
  return std::span(kAtomicSymbols).first(adds_words(call) ? 4 : widens(call.dtype, call.how) ? 3 : 1);
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
    launch(kClearClaims, once.count, {&claims, &indices, &once});
    launch(kClaim, once.count, {&claims, &indices, &once});
    launch(kSet, all.count, {&out, &values, &indices, &claims, &all});
  }

  void combine() const {
    if (!widens(call.dtype, call.how)) return combine_into(out);
    const Grid all = places.grid(call, Over::All);
    const Workspace memory(static_cast<std::uint64_t>(places.places) * sizeof(float), stream);
    void* wide = memory.data();
    launch(kWiden, all.count, {&wide, &out, &indices, &all});
    combine_into(wide);
    launch(kNarrow, all.count, {&out, &wide, &indices, &all});
  }

  void combine_into(void* kept) const {
    Grid all = places.grid(call, Over::All);
    const bool vectors = adds_words(call) && by_vectors(all, kept);
    launch(vectors ? kCombineVectors : kCombine, all.count, {&kept, &values, &indices, &all});
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
    sort.positions = true;
    sort.out = order_memory.data();
    cuda::sort(sort, stream);
    launch(kCombineInOrder, once.count * across.count,
           {&out, &values, &indices, &slots, &order, &once, &across});
  }
};

}  // namespace

std::string scatter_source(const Scatter& call) {
  namespace texts = codegen::templates;
  const bool vectors = !in_order(call) && adds_words(call),
             beside = vectors || (!in_order(call) && widens(call.dtype, call.how));
  const char* way = call.how == Combine::Set ? texts::scatter_set
                    : in_order(call)         ? texts::scatter_ordered
                                             : texts::scatter_atomic;
  return cat(template_prologue(), "typedef ", codegen::cuda_memory_type(worked_in(call.dtype, call.how)),
             " Element;\ntypedef ", codegen::cuda_memory_type(call.index_dtype),
             " Index;\nconstexpr int kHow = ", static_cast<int>(call.how), ";\n", texts::scatter, way,
             beside ? texts::scatter_widen : "", vectors ? cat(texts::memory, texts::scatter_vectors) : "");
}

void scatter(const Scatter& call, Stream stream) {
  if (count_of(call.x) == 0) return;
  copy_x(call, stream);
  if (count_of(call.values) == 0) return;
  const std::string name = cat("scatter_", static_cast<int>(call.how), in_order(call) ? "_ordered_" : "_",
                               codegen::cuda_memory_type(worked_in(call.dtype, call.how)), '_',
                               codegen::cuda_memory_type(call.index_dtype));
  const Writer writer{call, stream, template_kernels(device_of(stream), name, symbols_of(call), [&] {
                        return scatter_source(call);
                      })};
  if (call.how == Combine::Set)
    writer.set();
  else if (in_order(call))
    writer.combine_in_order();
  else
    writer.combine();
}

}  // namespace kiln::cuda
