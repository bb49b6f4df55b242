// Terminates: one walk in topological order; a scan becomes two of other extents and ten nodes more at most.
//
// What fills the last chunk comes last in the order of the scan, so that it reaches no value that is kept.
#include "transform/split_scans.h"

#include "ir/builder.h"
#include "support/check.h"
#include "support/scan_tiles.h"
#include "transform/nouns.h"
#include "transform/rebuild.h"

#include <algorithm>
#include <vector>

namespace kiln::transform {
namespace {

constexpr std::int64_t kLeastChunk = 32;    // elements: what comes before a chunk is then little beside it
constexpr std::int64_t kLeastRun = 8;       // adjacent bytes across the scans
constexpr std::int64_t kLongTotals = 512;   // one after the other: as long as two launches take
constexpr std::int64_t kWord = 4;           // bytes of an element that is accessed as fast as a vector
constexpr std::int64_t kLine = 128;         // bytes that memory is read by
constexpr std::int64_t kLeastChained = 32;  // adjacent bytes of columns that a warp reads row after row
constexpr std::int64_t kLeastStaged = 8;    // elements of a chunk in shared memory
constexpr std::int64_t kMostStaged = 64;

/// How two values become one, for each fold, and the reduction with the same fold.
struct Combination {
  Op two, all;
};
Combination combination_of(ir::Fold fold) {
  switch (fold) {
    case ir::Fold::Sum: return {Op::add, Op::reduce_sum};
    case ir::Fold::Prod: return {Op::multiply, Op::reduce_prod};
    case ir::Fold::Max: return {Op::maximum, Op::reduce_max};
    case ir::Fold::Min: return {Op::minimum, Op::reduce_min};
    case ir::Fold::LogAddExp: return {Op::logaddexp, Op::reduce_logaddexp};
    case ir::Fold::None:
    case ir::Fold::ArgMax:
    case ir::Fold::ArgMin: break;
  }
  KILN_CHECK_THAT(false, "no scan folds so");
  return {};
}

class Splitter {
 public:
  Splitter(Graph& graph, const ScanCosts& costs) : g_(graph), costs_(costs), add_(graph) {}

  Renumbering run() {
    return rebuild(g_, [&](NodeId, const GraphNode& n) {
      if (!ir::is_scan(n.op) || n.numel < costs_.least) return add_.push(n);
      const Scanned s{n.in[0], n.op, ir::attributes<ir::Scan>(n), n.dtype};
      const std::int64_t chunks = chunks_of(s, costs_.least_extent);
      if (chunks <= 1) return add_.push(n);
      add_.loc = n.loc;
      const NodeId out = split(s, chunks);
      g_[out].held = n.held;
      return out;
    });
  }

 private:
  struct Scanned {
    NodeId of;
    Op op;
    ir::Scan how;
    DType dtype;  // of the result
  };

  /// Chunks that make enough scans, or that fit shared memory; rather a number that divides the extent.
  std::int64_t chunks_of(const Scanned& s, std::int64_t least_extent) const {
    const GraphNode& n = g_[s.of];
    const std::int64_t extent = n.dims[s.how.axis];
    if (extent < least_extent || n.dims.size() >= kMaxRank) return 1;
    const std::int64_t across = points_across(s);
    if (across == 1 || is_chained(s, extent, across)) return 1;
    if (const std::int64_t length = staged_length(s, across); length > 0)
      return (extent + length - 1) / length;
    if (across * size_of(s.dtype) < kLeastRun) return 1;
    // Words have more under way: rather half as many scans than two chunks, of which one is read twice.
    if (stored_size(s.of) >= kWord && costs_.wanted / (n.numel / extent) <= 2) return 1;
    const std::int64_t wanted = std::min(costs_.wanted / (n.numel / extent), extent / kLeastChunk);
    for (std::int64_t chunks = wanted; chunks > wanted / 2 && chunks > 1; --chunks)
      if (extent % chunks == 0) return chunks;
    return wanted;
  }

  /// Whether one kernel makes the scan in chunks.
  bool is_chained(const Scanned& s, std::int64_t extent, std::int64_t across) const {
    constexpr std::int64_t kOfMultiprocessor = 1024;  // of the scans that are wanted
    const bool parts = ir::info(s.op).fold == ir::Fold::LogAddExp;
    if (parts && g_[s.of].numel / extent * kOfMultiprocessor >= kFewScansOfParts * costs_.wanted)
      return false;
    return extent >= kLeastChainedRows && across * size_of(s.dtype) >= (parts ? kLine : kLeastChained) &&
           lanes_of_tile(across, 1) > 0;
  }

  /// Points of the axes inside the scanned one.
  std::int64_t points_across(const Scanned& s) const {
    const GraphNode& n = g_[s.of];
    std::int64_t across = 1;
    for (std::size_t a = s.how.axis + 1; a < n.dims.size(); ++a) across *= n.dims[a];
    return across;
  }

  /// Elements along the axis of chunks that go through shared memory; 0 where they do not.
  std::int64_t staged_length(const Scanned& s, std::int64_t across) const {
    const GraphNode& n = g_[s.of];
    const std::int64_t extent = n.dims[s.how.axis];
    const bool whole_lines = across * size_of(s.dtype) >= kLine;  // that threads side by side read
    if (across == 1 || (whole_lines && n.numel / extent >= costs_.wanted)) return 0;
    const std::int64_t bytes = stored_size(s.of) + size_of(s.dtype);
    const std::int64_t most =
        std::min({kMostStaged, costs_.row_bytes / bytes, costs_.slab_bytes / (across * bytes)});
    if (most < kLeastStaged) return 0;
    // Those take long where they are not accessed by vectors; down columns of few bytes it would take longer.
    const bool by_elements = size_of(s.dtype) < kWord && across * size_of(s.dtype) >= kLeastRun;
    if (by_elements && s.how.reverse) return 0;
    for (std::int64_t length = most; 2 * length > most; --length)
      if (extent % length == 0) return length;
    return by_elements ? 0 : most;
  }

  /// Bytes of an element in memory of what a value is converted from.
  std::int64_t stored_size(NodeId id) const {
    while (g_[id].op == Op::cast) id = g_[id].in[0];
    return size_of(g_[id].dtype);
  }

  /// The same value made once more, where it only converts: a kernel of its own has it so.
  NodeId again(NodeId id) {
    return g_[id].op == Op::cast ? add_.add(Op::cast, {again(g_[id].in[0])}, {}, {.dtype = g_[id].dtype})
                                 : id;
  }

  NodeId cast(NodeId x, DType dtype) {
    return g_[x].dtype == dtype ? x : add_.add(Op::cast, {x}, {}, {.dtype = dtype});
  }
  NodeId reshape(NodeId x, const Shape& dims) {
    return add_.add(Op::reshape, {x}, {}, {.dims = g_.keep(dims)});
  }

  /// x with zeros before or behind it along the axis.
  NodeId filled(NodeId x, std::size_t axis, std::int64_t extent, bool before) {
    if (g_[x].dims[axis] == extent) return x;
    Shape dims(g_[x].dims);
    std::vector<std::int64_t> first(g_[x].dims.size(), 0), step(g_[x].dims.size(), 1);
    if (before) first[axis] = extent - dims[static_cast<int>(axis)];
    dims[static_cast<int>(axis)] = extent;
    const NodeId zero =
        add_.add(Op::constant, {}, ir::Constant{0}, {.dtype = g_[x].dtype, .dims = ir::Dims()});
    return add_.add(Op::pad, {x, zero}, ir::Box(first, step), {.dims = g_.keep(dims)});
  }

  /// The part of y that filled() was given.
  NodeId kept(NodeId y, std::size_t axis, std::int64_t extent, bool behind) {
    if (g_[y].dims[axis] == extent) return y;
    Shape dims(g_[y].dims);
    std::vector<std::int64_t> first(g_[y].dims.size(), 0), step(g_[y].dims.size(), 1);
    if (behind) first[axis] = dims[static_cast<int>(axis)] - extent;
    dims[static_cast<int>(axis)] = extent;
    return add_.add(Op::slice, {y}, ir::Box(first, step), {.dims = g_.keep(dims)});
  }

  /// The scan of the totals is split for as long as it is long: its threads are few, and each takes one total
  /// after the other.
  NodeId scan_totals(const Scanned& s) {
    const std::int64_t chunks = chunks_of(s, kLongTotals);
    return chunks > 1 ? split(s, chunks) : add_.add(s.op, {s.of}, s.how);
  }

  NodeId split(const Scanned& s, std::int64_t chunks) {
    const auto [axis, exclusive, reverse] = s.how;
    const Combination how = combination_of(ir::info(s.op).fold);
    const Shape dims(g_[s.of].dims);
    const std::int64_t extent = dims[static_cast<int>(axis)], length = (extent + chunks - 1) / chunks;
    chunks = (extent + length - 1) / length;
    const DType type = is_half(s.dtype) ? DType::Float32 : s.dtype;
    Shape whole = dims, cut;
    whole[static_cast<int>(axis)] = chunks * length;
    for (std::size_t a = 0; a < dims.size(); ++a) {
      if (a == axis) cut.push_back(chunks);
      cut.push_back(a == axis ? length : dims[static_cast<int>(a)]);
    }
    const NodeId x = reshape(filled(cast(s.of, type), axis, chunks * length, reverse), cut);
    // Nothing comes behind the last chunk, so its total is not needed; of chunks in shared memory it is
    // little beside the others, which lie side by side with it. A conversion of its own: one kernel of the
    // totals and the scans would have to store it.
    const std::int64_t totalled = staged_length(s, points_across(s)) > 0 ? chunks : chunks - 1;
    Shape some = cut;
    some[static_cast<int>(axis)] = totalled;
    NodeId first = cast(again(s.of), type);
    first = totalled < chunks ? kept(first, axis, totalled * length, reverse)
                              : filled(first, axis, chunks * length, reverse);
    const NodeId totals =
        add_.add(how.all, {reshape(first, some)}, ir::Reduce{std::uint64_t{1} << (axis + 1)});
    const NodeId before =
        scan_totals({filled(totals, axis, chunks, reverse), s.op, {axis, true, reverse}, type});
    const NodeId inside = add_.add(s.op, {x}, ir::Scan{axis + 1, exclusive, reverse});
    const NodeId spread = add_.add(Op::broadcast, {before}, {}, {.dims = g_.keep(cut)});
    // In the scan's own type before it is cut: what is kept then is a part of memory, and no copy of it.
    const NodeId y = reshape(cast(add_.add(how.two, {spread, inside}), s.dtype), whole);
    return kept(y, axis, extent, reverse);
  }

  Graph& g_;
  const ScanCosts& costs_;
  ir::Builder add_;
};

}  // namespace

Renumbering split_scans(Graph& graph, const ScanCosts& costs) { return Splitter(graph, costs).run(); }

}  // namespace kiln::transform
