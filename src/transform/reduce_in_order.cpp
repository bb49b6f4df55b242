// Terminates: one walk in topological order; a reduction becomes itself, the maps before it and a
// permutation.
//
// Only where nobody else reads the permuted array: what reads it beside its reduction, as a norm does, is
// one kernel with it over the same points.
#include "transform/reduce_in_order.h"

#include "ir/builder.h"
#include "transform/nouns.h"
#include "transform/rebuild.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace kiln::transform {
namespace {

constexpr std::int64_t kLeastReduced = 2;  // elements to each result: storing these far apart takes longer

class Orderer {
 public:
  Orderer(Graph& graph, std::int64_t least_points) : g_(graph), least_points_(least_points), add_(graph) {}

  Renumbering run() {
    find();
    return rebuild(g_, [&](NodeId id, const GraphNode& n) {
      return maps_[id] < 0 ? add_.push(n) : reduced(n, static_cast<std::size_t>(maps_[id]));
    });
  }

 private:
  /// How many maps stand between each reduction and the permutation that it alone reads; -1: it has none.
  void find() {
    std::vector<int> readers(g_.size());
    for (const GraphNode& n : g_.nodes)
      for (const NodeId in : n.in) ++readers[in];
    for (const NodeId root : g_.roots) ++readers[root];
    maps_.assign(g_.size(), -1);
    for (NodeId id = 0; id < g_.size(); ++id) {
      const GraphNode& n = g_[id];
      if (!ir::is_reduce(n.op) || n.in.size() != 1) continue;
      const std::int64_t points = g_[n.in[0]].numel;
      if (points < std::max(least_points_, kLeastReduced * n.numel)) continue;
      if ((n.op == Op::reduce_argmax || n.op == Op::reduce_argmin) &&
          std::popcount(ir::attributes<ir::Reduce>(n).mask) > 1)
        continue;  // a position among several axes
      NodeId at = n.in[0];
      int maps = 0;
      for (; readers[at] == 1 && is_map_of_one(g_[at]); at = g_[at].in[0]) ++maps;
      if (readers[at] == 1 && g_[at].op == Op::permute && !is_in_order(g_[at])) maps_[id] = maps;
    }
  }

  /// A map whose other operands are numbers.
  bool is_map_of_one(const GraphNode& n) const {
    if (!ir::is_elementwise(n.op) || g_[n.in[0]].numel != n.numel || g_[n.in[0]].dims.size() != n.dims.size())
      return false;
    for (std::size_t k = 1; k < n.in.size(); ++k)
      if (!g_[n.in[k]].dims.empty()) return false;
    return true;
  }

  static bool is_in_order(const GraphNode& n) {
    const auto from = ir::attributes<ir::Permute>(n);
    for (std::size_t a = 0; a < n.dims.size(); ++a)
      if (from[a] != a) return false;
    return true;
  }

  /// `n`, of the array below `maps` maps and a permutation.
  NodeId reduced(const GraphNode& n, std::size_t maps) {
    std::vector<GraphNode> above;  // the last first
    NodeId at = n.in[0];
    for (; above.size() < maps; at = g_[at].in[0]) above.push_back(g_[at]);
    const auto from = ir::attributes<ir::Permute>(g_[at]);
    NodeId x = g_[at].in[0];
    for (std::size_t i = maps; i-- > 0;) {
      GraphNode m = above[i];
      m.held = false;
      m.in[0] = x;
      m.dims = g_[x].dims;
      x = add_.push(std::move(m));
    }
    const auto over = ir::attributes<ir::Reduce>(n);
    ir::Reduce along{0};
    Shape dims;
    for (std::size_t a = 0; a < n.dims.size(); ++a) {
      if (over.over(a)) along.mask |= std::uint64_t{1} << from[a];
      dims.push_back(1);
    }
    for (std::size_t a = 0; a < n.dims.size(); ++a) dims[static_cast<int>(from[a])] = n.dims[a];
    GraphNode r = n;
    r.held = false;
    r.dims = g_.keep(ir::Dims(dims));
    add_.redefine(r, n.op, {x}, along);
    GraphNode shown = n;
    add_.redefine(shown, Op::permute, {add_.push(std::move(r))}, from);
    return add_.push(std::move(shown));
  }

  Graph& g_;
  const std::int64_t least_points_;
  ir::Builder add_;
  std::vector<int> maps_;  // by reduction
};

}  // namespace

Renumbering reduce_in_order(Graph& graph, std::int64_t least_points) {
  return Orderer(graph, least_points).run();
}

}  // namespace kiln::transform
