// Terminates: one walk in topological order; a sum becomes a dozen nodes at most.
#include "transform/expand_squares.h"

#include "ir/builder.h"
#include "kernel/expr.h"
#include "transform/nouns.h"
#include "transform/rebuild.h"

#include <kiln/shape.h>

#include <map>
#include <optional>
#include <set>
#include <vector>

namespace kiln::transform {
namespace {

class Expander {
 public:
  Expander(Graph& graph, const KeepsRows& keeps) : g_(graph), keeps_(keeps), add_(graph) {
    for (NodeId id = 0; id < graph.size(); ++id) {
      found_.push_back(find(graph[id]));
      if (found_.back()) sums_.insert(found_.back()->sum);
    }
  }

  Renumbering run() {
    return rebuild(g_, [&](NodeId id, const GraphNode& n) {
      now_.push_back(found_[id]           ? expanded(n, *found_[id])
                     : sums_.contains(id) ? widened(id, n)
                                          : add_.push(n));
      return now_.back();
    });
  }

 private:
  struct Found {
    NodeId x, mean, sum;  // as they were
  };

  /// The node whose elements these are, through reshapes and broadcasts.
  NodeId elements_of(NodeId id) const {
    while (g_[id].op == Op::reshape || g_[id].op == Op::broadcast) id = g_[id].in[0];
    return id;
  }

  std::optional<Found> find(const GraphNode& n) const {
    if (n.op != Op::reduce_sum || n.dtype != DType::Float32) return std::nullopt;
    const GraphNode& square = g_[n.in[0]];
    if (square.op != Op::multiply || square.in[0] != square.in[1]) return std::nullopt;
    const GraphNode& apart = g_[square.in[0]];
    if (apart.op != Op::subtract || apart.dtype != DType::Float32) return std::nullopt;
    const NodeId x = apart.in[0], mean = elements_of(apart.in[1]);
    if (g_[x].numel != square.numel || g_[mean].numel != n.numel ||
        (g_[mean].op != Op::divide && g_[mean].op != Op::multiply))
      return std::nullopt;
    const std::uint64_t axes = ir::attributes<ir::Reduce>(n).mask;
    for (const NodeId in : g_[mean].in) {
      const NodeId sum = elements_of(in);
      if (g_[sum].op == Op::reduce_sum && g_[sum].in[0] == x &&
          ir::attributes<ir::Reduce>(g_[sum]).mask == axes &&
          !keeps_(reduced_rows(g_, x, axes, n.numel), sum))
        return Found{x, mean, sum};
    }
    return std::nullopt;
  }

  NodeId cast(NodeId x, DType dtype) {
    return g_[x].dtype == dtype ? x : add_.add(Op::cast, {x}, {}, {.dtype = dtype});
  }
  NodeId number(double value) {
    return add_.add(Op::constant, {}, ir::Constant{kernel::const_bits(DType::Float64, value)},
                    {.dtype = DType::Float64, .dims = Shape{}});
  }

  /// The sum that the mean is made of, in Float64.
  NodeId widened(NodeId id, const GraphNode& n) {
    add_.loc = n.loc;
    const NodeId x = cast(n.in[0], DType::Float64);
    wide_[id] = add_.add(Op::reduce_sum, {x}, ir::attributes<ir::Reduce>(n));
    const NodeId sum = cast(wide_[id], n.dtype);
    g_[sum].held = n.held;
    return sum;
  }

  NodeId expanded(const GraphNode& n, const Found& f) {
    add_.loc = n.loc;
    const NodeId x = cast(now_[f.x], DType::Float64);
    const NodeId squares =
        add_.add(Op::reduce_sum, {add_.add(Op::multiply, {x, x})}, ir::attributes<ir::Reduce>(n));
    const NodeId mean = cast(add_.add(Op::reshape, {now_[f.mean]}, {}, {.dims = n.dims}), DType::Float64),
                 sum = add_.add(Op::reshape, {wide_.at(f.sum)}, {}, {.dims = n.dims});
    const NodeId whole = add_.add(Op::multiply, {mean, number(static_cast<double>(g_[x].numel / n.numel))}),
                 twice = add_.add(Op::add, {sum, sum});
    const NodeId less = add_.add(Op::multiply, {mean, add_.add(Op::subtract, {twice, whole})});
    const NodeId all = add_.add(Op::maximum, {add_.add(Op::subtract, {squares, less}), number(0)});
    const NodeId out = cast(all, n.dtype);
    g_[out].held = n.held;
    return out;
  }

  Graph& g_;
  const KeepsRows& keeps_;
  ir::Builder add_;
  std::vector<std::optional<Found>> found_;
  std::set<NodeId> sums_;          // that are needed in Float64
  std::map<NodeId, NodeId> wide_;  // those, as they are now
  std::vector<NodeId> now_;
};

}  // namespace

Renumbering expand_squares(Graph& graph, const KeepsRows& keeps) { return Expander(graph, keeps).run(); }

}  // namespace kiln::transform
