// Terminates: one walk in topological order; a reduction becomes two, of which the second has fewer runs of
// reduced axes, and two casts.
//
// Memory is taken to be in the order of the axes: of what is permuted the operand is split, and the result
// permuted. Where memory is in another order nevertheless, the first reduction is over other axes than it
// might be, which costs time and no value.
#include "transform/split_reductions.h"

#include "ir/builder.h"
#include "transform/nouns.h"
#include "transform/rebuild.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace kiln::transform {
namespace {

constexpr std::int64_t kShortRow =
    2048;                       // elements of a row that few threads hold, so that a block has several
constexpr double kInCache = 2;  // times that their reading takes as long as that of long runs
constexpr double kTurned = 2;   // the same of short rows that are turned on the way, so that each has a lane
constexpr std::int64_t kLeastFolds = 4;  // points of an axis that share the lanes with those inside it

/// Adjacent axes that are all reduced or all kept, extents of 1 among them.
struct Run {
  bool reduced;
  std::int64_t extent;
  std::uint64_t axes;
};

std::vector<Run> runs_of(ir::Dims dims, ir::Reduce over) {
  std::vector<Run> runs;
  for (std::size_t a = 0; a < dims.size(); ++a) {
    const std::uint64_t axis = std::uint64_t{1} << a;
    if (dims[a] == 1 && !runs.empty()) {
      if (over.over(a) == runs.back().reduced) runs.back().axes |= axis;
      continue;
    }
    if (dims[a] == 1) continue;
    if (runs.empty() || runs.back().reduced != over.over(a)) runs.push_back({over.over(a), 1, 0});
    runs.back().extent *= dims[a];
    runs.back().axes |= axis;
  }
  return runs;
}

class Splitter {
 public:
  Splitter(Graph& graph, const ReductionCosts& costs) : g_(graph), costs_(costs), add_(graph) {}

  Renumbering run() {
    find_spread();
    return rebuild(g_, [&](NodeId id, const GraphNode& n) {
      if (!may_be_split(n)) return add_.push(n);
      const Operand of = operand(n);
      const std::uint64_t first = first_axes(n, of, spread_[id]);
      return first ? split(n, of, first) : add_.push(n);
    });
  }

  bool splits(NodeId id) {
    find_spread();
    const GraphNode& n = g_[id];
    return may_be_split(n) && first_axes(n, operand(n), spread_[id]) != 0;
  }

 private:
  /// What a reduction reads, in the order of its memory: not permuted.
  struct Operand {
    NodeId id;
    ir::Reduce over;
    std::optional<ir::Permute> permuted;
  };
  Operand operand(const GraphNode& n) const {
    const auto over = ir::attributes<ir::Reduce>(n);
    const GraphNode& in = g_[n.in[0]];
    if (in.op != Op::permute) return {n.in[0], over, {}};
    const auto order = ir::attributes<ir::Permute>(in);
    std::uint64_t mask = 0;
    for (std::size_t axis = 0; axis < in.dims.size(); ++axis)
      if (over.over(axis)) mask |= std::uint64_t{1} << order[axis];
    return {in.in[0], ir::Reduce{mask}, order};
  }

  /// The most elements of what is made of each node.
  void find_spread() {
    spread_.assign(g_.size(), 0);
    for (NodeId id = g_.size(); id-- > 0;)
      for (const NodeId in : g_[id].in) {
        std::int64_t& of = spread_[in];
        of = std::max({of, g_[id].numel, spread_[id]});
      }
  }

  /// A position would need its value beside it.
  static bool may_be_split(const GraphNode& n) { return ir::is_reduce(n.op) && !ir::has(n.op, ir::POSITION); }

  /// Bytes of an element of the widest operand that a value is made of by maps of as many elements.
  static std::int64_t stored_size(const Graph& g, NodeId id, int most_maps = 8) {
    const GraphNode& n = g[id];
    const ir::OpKind kind = ir::info(n.op).kind;
    std::int64_t widest = 0;
    if ((kind == ir::OpKind::Cast || kind == ir::OpKind::Elementwise) && most_maps > 0)
      for (const NodeId in : n.in)
        if (g[in].numel == n.numel && g[in].op != Op::broadcast)
          widest = std::max(widest, stored_size(g, in, most_maps - 1));
    return widest > 0 ? widest : size_of(n.dtype);
  }

  double slowdown(double run_bytes) const { return std::max(1.0, costs_.run_bytes / run_bytes); }

  /// Whether a kernel has the last three runs on its lanes: few points inside a reduced axis.
  bool folds(const std::vector<Run>& runs) const {
    if (runs.size() < 3 || !runs.back().reduced) return false;
    std::int64_t items = 1;
    for (std::size_t r = 0; r + 3 < runs.size(); ++r)
      if (!runs[r].reduced) items *= runs[r].extent;
    return items >= costs_.items && runs[runs.size() - 3].extent >= kLeastFolds &&
           runs.back().extent * runs[runs.size() - 2].extent <= costs_.folded;
  }

  /// Whether what a value is made of by maps lies in memory as the value does, or is the same along `rows`.
  bool lies_in_order(NodeId id, std::uint64_t rows, int most_maps = 8) const {
    const GraphNode& n = g_[id];
    const ir::OpKind kind = ir::info(n.op).kind;
    if (kind == ir::OpKind::Cast || kind == ir::OpKind::Elementwise)
      return most_maps > 0 && std::ranges::all_of(n.in, [&](NodeId in) {
               return g_[in].numel < n.numel || lies_in_order(in, rows, most_maps - 1);
             });
    if (n.op == Op::broadcast) {
      const ir::Dims of = g_[n.in[0]].dims;
      for (std::size_t a = 0; a < of.size(); ++a)
        if ((rows >> a & 1) != 0 && of[a] != 1) return false;
      return of.size() == n.dims.size();
    }
    if (kind == ir::OpKind::View || kind == ir::OpKind::Gather) return false;
    if (kind != ir::OpKind::Leaf) return true;
    const ir::ArgInfo& arg = g_.args[static_cast<std::size_t>(n.arg)];
    std::int64_t step = 1;
    for (std::size_t a = arg.dims.size(); a-- > 0; step *= arg.dims[a])
      if (arg.dims[a] != 1 && arg.strides[a] != step) return false;
    return true;
  }

  /// Whether a kernel has the last two runs on its lanes, and keeps what it reads for the second time.
  bool keeps_groups(const std::vector<Run>& runs, std::int64_t bytes) const {
    if (!costs_.keeps_groups || runs.size() < 3 || !runs.back().reduced) return false;
    ReductionCosts::Columns c{.together = runs.back().extent, .bytes = bytes};
    for (std::size_t r = 0; r < runs.size(); ++r)
      (r + 2 >= runs.size() ? c.columns : runs[r].reduced ? c.rows : c.items) *= runs[r].extent;
    return costs_.keeps_groups(c);
  }

  /// The axes to reduce first, or 0: compares the bytes that both ways move, those of short runs counted as
  /// often as whole runs would be read in their time. What a kernel would have held for a second read is read
  /// again.
  std::uint64_t first_axes(const GraphNode& n, const Operand& of, std::int64_t spread) const {
    const GraphNode& in = g_[of.id];
    const std::vector<Run> runs = runs_of(in.dims, of.over);
    const auto reduced = std::count_if(runs.begin(), runs.end(), [](const Run& r) { return r.reduced; });
    if (reduced < 2 || n.numel == 0 || folds(runs)) return 0;
    const double size = static_cast<double>(stored_size(g_, of.id)), elements = static_cast<double>(in.numel);
    const double bytes = elements * size, part = static_cast<double>(size_of(part_type(n, in.dtype)));
    const double again = spread >= in.numel && in.numel / n.numel <= costs_.held ? bytes : 0;
    if (again > 0 && !of.permuted && keeps_groups(runs, static_cast<std::int64_t>(size)) &&
        lies_in_order(of.id, of.over.mask & ~runs.back().axes))
      return 0;
    const double slow = slowdown(static_cast<double>(runs.back().extent) * size);
    double least = bytes * slow + (costs_.read_again ? again * (slow - 1) : 0);
    std::uint64_t best = 0, axes = 0;
    double factor = 1, after = elements;
    auto left = reduced;
    for (const Run& r : runs) {
      after /= static_cast<double>(r.extent);
      if (!r.reduced) continue;
      if (--left == 0) break;
      // The first cache has the lines of rows that are read side by side.
      if (axes == 0 && again > 0 && in.numel / n.numel <= kShortRow && after * size <= costs_.run_bytes)
        least = std::min(least, kInCache * bytes);
      axes |= r.axes;
      factor *= static_cast<double>(r.extent);
      const double moved =
          bytes * slowdown(after * size) + 2 * elements / factor * part + again + costs_.launch_bytes;
      if (moved >= least) continue;
      least = moved;
      best = axes;
    }
    if (const Run& last = runs.back(); last.reduced && last.extent <= costs_.turned) {
      const double results = elements / static_cast<double>(last.extent);
      if (kTurned * bytes + 2 * results * part + again + costs_.launch_bytes < least) best = last.axes;
    }
    return best;
  }

  /// Sums of halves are kept in what they are added up in; a greatest element is one of the elements.
  static DType part_type(const GraphNode& n, DType of) {
    return is_half(of) && !ir::chooses(ir::info(n.op).fold) ? DType::Float32 : of;
  }

  NodeId cast(NodeId x, DType dtype) {
    return g_[x].dtype == dtype ? x : add_.add(Op::cast, {x}, {}, {.dtype = dtype});
  }

  NodeId split(const GraphNode& n, const Operand& of, std::uint64_t first) {
    add_.loc = n.loc;
    const NodeId x = cast(of.id, part_type(n, g_[of.id].dtype));
    const bool wider = n.dtype == DType::Float64;  // than its operand, perhaps
    const NodeId part = add_.add(n.op, {x}, ir::Reduce{first}, {.dtype = wider ? n.dtype : g_[x].dtype});
    NodeId whole = cast(add_.add(n.op, {part}, ir::Reduce{of.over.mask & ~first}), n.dtype);
    if (of.permuted) whole = add_.add(Op::permute, {whole}, *of.permuted);
    g_[whole].held = n.held;
    return whole;
  }

  Graph& g_;
  const ReductionCosts& costs_;
  ir::Builder add_;
  std::vector<std::int64_t> spread_;
};

}  // namespace

Renumbering split_reductions(Graph& graph, const ReductionCosts& costs) {
  return Splitter(graph, costs).run();
}

bool is_split(ir::Graph& graph, NodeId reduction, const ReductionCosts& costs) {
  return Splitter(graph, costs).splits(reduction);
}

}  // namespace kiln::transform
