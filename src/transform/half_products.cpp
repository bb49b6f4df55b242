// Terminates: one walk in topological order; a cast becomes a product and the views around it, and looks
// along views from a node to its operand.
#include "transform/half_products.h"

#include "ir/builder.h"
#include "ir/uses.h"
#include "transform/nouns.h"
#include "transform/rebuild.h"

namespace kiln::transform {
namespace {

/// Whether a view only moves elements.
bool moves(Op op) { return op == Op::reshape || op == Op::permute || op == Op::broadcast || op == Op::slice; }

class Finder {
 public:
  explicit Finder(Graph& graph) : g_(graph), add_(graph) {
    const ir::Uses uses(graph);
    std::vector<bool> is_root(graph.size());
    for (const NodeId root : graph.roots) is_root[root] = true;
    const auto alone = [&](NodeId id) { return uses[id].size() == 1 && !is_root[id] && !graph[id].held; };
    for (NodeId id = 0; id < graph.size(); ++id) {
      const GraphNode& n = graph[id];
      bool found = n.op == Op::cast && is_half(n.dtype);
      NodeId of = found ? n.in[0] : id;
      while (found && alone(of) && moves(graph[of].op)) of = graph[of].in[0];
      const GraphNode& product = graph[of];
      found = found && alone(of) && product.op == Op::matmul && product.dtype == DType::Float32;
      found_.push_back(found && shows(product.in[0], n.dtype) && shows(product.in[1], n.dtype));
    }
  }

  Renumbering run() {
    return rebuild(g_, [&](NodeId id, const GraphNode& n) {
      if (!found_[id]) return add_.push(n);
      const NodeId out = as_halves(n.in[0], n.dtype);
      g_[out].held = n.held;
      return out;
    });
  }

 private:
  /// Whether a value is one of halves as floats, moved or not.
  bool shows(NodeId id, DType half) const {
    while (moves(g_[id].op)) id = g_[id].in[0];
    return g_[id].op == Op::cast && g_[g_[id].in[0]].dtype == half;
  }

  /// The product, or one of its operands, of halves.
  NodeId as_halves(NodeId id, DType half) {
    GraphNode n = g_[id];
    if (n.op == Op::cast) return n.in[0];
    for (NodeId& in : n.in) in = as_halves(in, half);
    n.dtype = half;
    return add_.push(std::move(n));
  }

  Graph& g_;
  ir::Builder add_;
  std::vector<bool> found_;
};

}  // namespace

Renumbering half_products(Graph& graph) { return Finder(graph).run(); }

}  // namespace kiln::transform
