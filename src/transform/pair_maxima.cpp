// Terminates: one walk in topological order; a sum becomes six nodes.
#include "transform/pair_maxima.h"

#include "ir/builder.h"
#include "transform/rebuild.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace kiln::transform {
namespace {

class Pairer {
 public:
  Pairer(Graph& graph, const KeepsRows& keeps) : g_(graph), keeps_(keeps), add_(graph) {
    for (NodeId id = 0; id < graph.size(); ++id) {
      const GraphNode& n = graph[id];
      of_product_.push_back(n.op == Op::matmul ||
                            std::ranges::any_of(n.in, [&](NodeId in) { return of_product_[in]; }));
      found_.push_back(find(id));
    }
  }

  Renumbering run() {
    return rebuild(g_, [&](NodeId id, const GraphNode& n) {
      now_.push_back(found_[id] ? paired(n, *found_[id]) : add_.push(n));
      return now_.back();
    });
  }

 private:
  struct Found {
    NodeId x, greatest;  // as they were
  };

  std::optional<Found> find(NodeId id) const {
    const GraphNode& n = g_[id];
    if (n.op != Op::reduce_sum || n.dtype != DType::Float32 || n.numel == 0) return std::nullopt;
    const GraphNode& weights = g_[n.in[0]];
    if (weights.op != Op::exp || g_[weights.in[0]].op != Op::subtract) return std::nullopt;
    const GraphNode& apart = g_[weights.in[0]];
    const NodeId x = apart.in[0];
    NodeId greatest = apart.in[1];
    while (g_[greatest].op == Op::reshape || g_[greatest].op == Op::broadcast) greatest = g_[greatest].in[0];
    const std::uint64_t axes = ir::attributes<ir::Reduce>(n).mask;
    const GraphNode& m = g_[greatest];
    if (of_product_[x] || m.op != Op::reduce_max || m.in[0] != x ||
        ir::attributes<ir::Reduce>(m).mask != axes || m.dtype != DType::Float32 ||
        keeps_(reduced_rows(g_, x, axes, n.numel), greatest))
      return std::nullopt;
    return Found{x, greatest};
  }

  NodeId cast(NodeId x, DType dtype) { return add_.add(Op::cast, {x}, {}, {.dtype = dtype}); }

  NodeId paired(const GraphNode& n, const Found& f) {
    add_.loc = n.loc;
    const NodeId all =
        add_.add(Op::reduce_logaddexp, {now_[f.x]}, ir::attributes<ir::Reduce>(n), {.dtype = DType::Float64});
    const NodeId greatest = cast(now_[f.greatest], DType::Float64);
    const NodeId sum = cast(add_.add(Op::exp, {add_.add(Op::subtract, {all, greatest})}), DType::Float32);
    g_[sum].held = n.held;
    return sum;
  }

  Graph& g_;
  const KeepsRows& keeps_;
  ir::Builder add_;
  std::vector<bool> of_product_;
  std::vector<std::optional<Found>> found_;
  std::vector<NodeId> now_;
};

}  // namespace

Renumbering pair_maxima(Graph& graph, const KeepsRows& keeps) { return Pairer(graph, keeps).run(); }

}  // namespace kiln::transform
