// Terminates: one walk in topological order; a product becomes nine nodes at most. Each look at what makes a
// matrix goes from a node to one of its operands.
#include "transform/sum_vectors.h"

#include "ir/builder.h"
#include "transform/nouns.h"
#include "transform/rebuild.h"

#include <kiln/shape.h>

#include <algorithm>
#include <vector>

namespace kiln::transform {
namespace {

class Summer {
 public:
  explicit Summer(Graph& graph) : g_(graph), readers_(graph.size()), add_(graph) {
    for (const GraphNode& n : graph.nodes)
      for (const NodeId in : n.in) ++readers_[in];
    for (const NodeId root : graph.roots) ++readers_[root];
    for (NodeId id = 0; id < graph.size(); ++id) sums_.push_back(pays(graph[id]));
  }

  Renumbering run() {
    return rebuild(g_, [&](NodeId id, const GraphNode& n) { return sums_[id] ? sum(n) : add_.push(n); });
  }

 private:
  struct Operands {
    NodeId matrix, vector;
    std::size_t k;  // the axis of the matrix, of its last two, that is summed
  };
  static Operands operands(const GraphNode& n) {
    return n.dims[n.dims.size() - 2] == 1 ? Operands{n.in[1], n.in[0], 0} : Operands{n.in[0], n.in[1], 1};
  }

  bool pays(const GraphNode& n) const {
    if (n.op != Op::matmul || !is_float(n.dtype) || n.numel == 0) return false;
    const std::size_t rank = n.dims.size();
    if (n.dims[rank - 2] != 1 && n.dims[rank - 1] != 1) return false;
    const NodeId matrix = operands(n).matrix;
    if (g_[matrix].numel == 0) return false;
    for (std::size_t a = 0; a + 2 < rank; ++a)
      if (n.dims[a] != 1) return false;
    return is_half(n.dtype) || is_made(matrix);
  }

  /// Whether a map makes it for this product alone.
  bool is_made(NodeId id) const {
    for (; readers_[id] == 1; id = g_[id].in[0]) {
      if (ir::is_elementwise(g_[id].op)) return true;
      if (!ir::is_view(g_[id].op)) return false;
    }
    return false;
  }

  /// Whether the last two axes lie the other way round in the memory that it is made of.
  bool is_turned(NodeId id) const {
    bool turned = false;
    for (;;) {
      const GraphNode& n = g_[id];
      const std::size_t rank = n.dims.size();
      if (n.op == Op::permute) {
        turned ^= ir::attributes<ir::Permute>(n)[rank - 1] == rank - 2;
      } else if (!ir::is_elementwise(n.op) && n.op != Op::alias && n.op != Op::broadcast) {
        return turned;
      }
      const auto as_large = [&](NodeId in) { return g_[in].numel == n.numel; };
      const auto next = std::ranges::find_if(n.in, as_large);
      if (next == n.in.end()) return turned;
      id = *next;
    }
  }

  /// As floats of 32 bits and more, with these extents.
  NodeId shown(NodeId x, const Shape& dims) {
    if (is_half(g_[x].dtype)) x = add_.add(Op::cast, {x}, {}, {.dtype = DType::Float32});
    return add_.add(Op::reshape, {x}, {}, {.dims = dims});
  }

  NodeId sum(const GraphNode& n) {
    add_.loc = n.loc;
    const Operands o = operands(n);
    const ir::Dims dims = g_[o.matrix].dims.last(2);
    const std::int64_t extent = dims[o.k], others = dims[1 - o.k];
    std::size_t k = o.k;
    NodeId matrix = shown(o.matrix, Shape{dims[0], dims[1]});
    if (is_turned(o.matrix)) {
      ir::Permute order;
      order.show(0, 1);
      order.show(1, 0);
      matrix = add_.add(Op::permute, {matrix}, order);
      k = 1 - k;
    }
    const NodeId vector = shown(o.vector, k == 0 ? Shape{extent, 1} : Shape{1, extent});
    const NodeId products = add_.add(Op::multiply, {matrix, vector});
    NodeId sum = add_.add(Op::reduce_sum, {products}, ir::Reduce{std::uint64_t{1} << k});
    if (g_[sum].dtype != n.dtype) sum = add_.add(Op::cast, {sum}, {}, {.dtype = n.dtype});
    sum = add_.add(Op::reshape, {sum}, {}, {.dims = n.dims});
    g_[sum].held = n.held;
    return sum;
  }

  Graph& g_;
  std::vector<int> readers_;
  std::vector<bool> sums_;  // of the graph as it was
  ir::Builder add_;
};

}  // namespace

Renumbering sum_vectors(Graph& graph) { return Summer(graph).run(); }

}  // namespace kiln::transform
