// Terminates: one walk in topological order; a scan becomes two of other extents and ten nodes more at most.
//
// What fills the last chunk comes last in the order of the scan, so that it reaches no value that is kept.
#include "transform/split_scans.h"

#include "ir/builder.h"
#include "support/check.h"
#include "transform/nouns.h"
#include "transform/rebuild.h"

#include <algorithm>
#include <vector>

namespace kiln::transform {
namespace {

constexpr std::int64_t kLeastChunk = 32;  // elements: what comes before a chunk is then little beside it
constexpr std::int64_t kLeastRun = 8;     // adjacent bytes across the scans

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
      const std::int64_t chunks = ir::is_scan(n.op) ? chunks_of(n) : 1;
      return chunks > 1 ? split(n, chunks) : add_.push(n);
    });
  }

 private:
  /// Chunks that make enough scans; rather a number that divides the extent.
  std::int64_t chunks_of(const GraphNode& n) const {
    const std::size_t axis = ir::attributes<ir::Scan>(n).axis;
    const std::int64_t extent = n.dims[axis];
    if (n.numel < costs_.least || extent < costs_.least_extent || n.dims.size() >= kMaxRank) return 1;
    std::int64_t across = 1;
    for (std::size_t a = axis + 1; a < n.dims.size(); ++a) across *= n.dims[a];
    if (across * size_of(n.dtype) < kLeastRun) return 1;
    const std::int64_t wanted = std::min(costs_.wanted / (n.numel / extent), extent / kLeastChunk);
    for (std::int64_t chunks = wanted; chunks > wanted / 2 && chunks > 1; --chunks)
      if (extent % chunks == 0) return chunks;
    return wanted;
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

  NodeId split(const GraphNode& n, std::int64_t chunks) {
    add_.loc = n.loc;
    const auto [axis, exclusive, reverse] = ir::attributes<ir::Scan>(n);
    const Combination how = combination_of(ir::info(n.op).fold);
    const std::int64_t length = (n.dims[axis] + chunks - 1) / chunks;
    const DType type = is_half(n.dtype) ? DType::Float32 : n.dtype;
    Shape whole(n.dims), cut;
    whole[static_cast<int>(axis)] = chunks * length;
    for (std::size_t a = 0; a < n.dims.size(); ++a) {
      if (a == axis) cut.push_back(chunks);
      cut.push_back(a == axis ? length : n.dims[a]);
    }
    const NodeId x = reshape(filled(cast(n.in[0], type), axis, chunks * length, reverse), cut);
    const NodeId totals = add_.add(how.all, {x}, ir::Reduce{std::uint64_t{1} << (axis + 1)});
    const NodeId before = add_.add(n.op, {totals}, ir::Scan{axis, true, reverse});
    const NodeId inside = add_.add(n.op, {x}, ir::Scan{axis + 1, exclusive, reverse});
    const NodeId spread = add_.add(Op::broadcast, {before}, {}, {.dims = g_.keep(cut)});
    // In the scan's own type before it is cut: what is kept then is a part of memory, and no copy of it.
    const NodeId y = reshape(cast(add_.add(how.two, {spread, inside}), n.dtype), whole);
    const NodeId out = kept(y, axis, n.dims[axis], reverse);
    g_[out].held = n.held;
    return out;
  }

  Graph& g_;
  const ScanCosts& costs_;
  ir::Builder add_;
};

}  // namespace

Renumbering split_scans(Graph& graph, const ScanCosts& costs) { return Splitter(graph, costs).run(); }

}  // namespace kiln::transform
