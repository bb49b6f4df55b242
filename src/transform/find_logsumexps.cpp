// Terminates: one walk in topological order; a sum of two values becomes four nodes at most.
#include "transform/find_logsumexps.h"

#include "ir/builder.h"
#include "transform/nouns.h"
#include "transform/rebuild.h"

#include <optional>
#include <vector>

namespace kiln::transform {
namespace {

class Finder {
 public:
  explicit Finder(Graph& graph) : g_(graph), readers_(graph.size()), add_(graph) {
    for (const GraphNode& n : graph.nodes)
      for (const NodeId in : n.in) ++readers_[in];
    for (const NodeId root : graph.roots) ++readers_[root];
    for (NodeId id = 0; id < graph.size(); ++id) found_.push_back(find(graph[id]));
  }

  Renumbering run() {
    return rebuild(g_, [&](NodeId id, GraphNode n) {
      now_.push_back(ir::kNoNode);
      return now_.back() = found_[id] ? written(std::move(n), *found_[id]) : add_.push(n);
    });
  }

 private:
  struct Found {
    NodeId x;              // as it was, …
    std::uint64_t axes;    // … reduced over these
    std::size_t greatest;  // the operand of the sum that is their maximum
  };

  /// The node whose elements these are, through reshapes and, where `spread`, broadcasts.
  NodeId elements_of(NodeId id, bool spread) const {
    while (g_[id].op == Op::reshape || (spread && g_[id].op == Op::broadcast)) id = g_[id].in[0];
    return id;
  }

  /// What a node is made of, if nobody else reads that.
  std::optional<NodeId> own(NodeId id, Op op) const {
    for (; g_[id].op == Op::reshape && readers_[id] == 1;) id = g_[id].in[0];
    if (g_[id].op != op || readers_[id] != 1) return std::nullopt;
    return g_[id].in[0];
  }

  std::optional<Found> find(const GraphNode& n) const {
    if (n.op != Op::add || (n.dtype != DType::Float32 && n.dtype != DType::Float64)) return std::nullopt;
    for (std::size_t k = 0; k < 2; ++k) {
      const NodeId greatest = elements_of(n.in[k], false);
      if (g_[greatest].op != Op::reduce_max || g_[n.in[k]].numel != n.numel) continue;
      const std::optional<NodeId> sum = own(n.in[1 - k], Op::log);
      if (!sum || g_[n.in[1 - k]].numel != n.numel) continue;
      const std::optional<NodeId> weights = own(*sum, Op::reduce_sum);
      const std::optional<NodeId> apart = weights ? own(*weights, Op::exp) : std::nullopt;
      if (!apart || g_[*apart].op != Op::subtract || readers_[*apart] != 1) continue;
      const NodeId x = g_[greatest].in[0];
      const auto axes = ir::attributes<ir::Reduce>(g_[greatest]).mask;
      const NodeId summed = elements_of(*sum, false);
      if (g_[*apart].in[0] == x && elements_of(g_[*apart].in[1], true) == greatest &&
          ir::attributes<ir::Reduce>(g_[summed]).mask == axes && g_[x].dtype == n.dtype &&
          g_[summed].in[0] == *weights)
        return Found{x, axes, k};
    }
    return std::nullopt;
  }

  NodeId written(GraphNode n, const Found& f) {
    add_.loc = n.loc;
    NodeId all = add_.add(Op::reduce_logaddexp, {now_[f.x]}, ir::Reduce{f.axes});
    all = add_.add(Op::reshape, {all}, {}, {.dims = g_[n.in[f.greatest]].dims});
    add_.redefine(n, Op::add, {all, add_.add(Op::subtract, {all, all})});
    return add_.push(n);
  }

  Graph& g_;
  std::vector<int> readers_;
  std::vector<std::optional<Found>> found_;
  std::vector<NodeId> now_;
  ir::Builder add_;
};

}  // namespace

Renumbering find_logsumexps(Graph& graph) { return Finder(graph).run(); }

}  // namespace kiln::transform
