// Terminates: one walk in topological order; a product becomes nine nodes at most.
#include "transform/sum_products.h"

#include "ir/builder.h"
#include "transform/nouns.h"
#include "transform/rebuild.h"
#include "transform/turned.h"

#include <kiln/shape.h>

namespace kiln::transform {
namespace {

class Summer {
 public:
  explicit Summer(Graph& graph) : g_(graph), add_(graph) {}

  Renumbering run() {
    return rebuild(g_, [&](NodeId, const GraphNode& n) {
      return n.op == Op::matmul && n.dims.size() < kMaxRank ? product(n) : add_.push(n);
    });
  }

 private:
  NodeId cast(NodeId x, DType dtype) {
    return g_[x].dtype == dtype ? x : add_.add(Op::cast, {x}, {}, {.dtype = dtype});
  }
  NodeId reshape(NodeId x, ir::Dims dims) { return add_.add(Op::reshape, {x}, {}, {.dims = dims}); }

  /// x (…, r, c) with an axis of extent 1 more: (…, r, c) and the 1 in front of, between or behind them; or
  /// turned before.
  NodeId spread(NodeId x, DType dtype, std::size_t at) {
    Shape dims;
    const ir::Dims from = g_[x].dims;
    const std::size_t batch = from.size() - 2;
    for (std::size_t a = 0; a <= from.size(); ++a) {
      if (a == batch + at) dims.push_back(1);
      if (a < from.size()) dims.push_back(from[a]);
    }
    return reshape(cast(x, dtype), dims);
  }

  NodeId product(const GraphNode& n) {
    add_.loc = n.loc;
    const std::size_t rank = n.dims.size(), k_axis = rank - 1;
    const bool truth = is_bool(n.dtype);
    const DType dtype = is_half(n.dtype) ? DType::Float32 : n.dtype;
    // Columns last, or rows if there is one column only: the last axis is then not the one that is summed.
    const bool by_rows = n.dims[rank - 1] == 1 && n.dims[rank - 2] != 1;
    NodeId x, y;  // (…, m, k, 1) and (…, 1, k, n), or (…, 1, k, m) and (…, n, k, 1)
    if (by_rows) {
      x = spread(turned(g_, add_, n.in[0]), dtype, 0);
      y = spread(turned(g_, add_, n.in[1]), dtype, 2);
    } else {
      x = spread(n.in[0], dtype, 2);
      y = spread(n.in[1], dtype, 0);
    }
    const NodeId products = add_.add(truth ? Op::logical_and : Op::multiply, {x, y});
    NodeId sum =
        add_.add(truth ? Op::reduce_max : Op::reduce_sum, {products}, ir::Reduce{std::uint64_t{1} << k_axis});
    sum = reshape(sum, n.dims);  // one of m and n is 1 where they are turned
    sum = cast(sum, n.dtype);
    g_[sum].held = n.held;
    return sum;
  }

  Graph& g_;
  ir::Builder add_;
};

}  // namespace

Renumbering sum_products(Graph& graph) { return Summer(graph).run(); }

}  // namespace kiln::transform
