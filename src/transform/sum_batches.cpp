// Terminates: one walk in topological order; a sum becomes six nodes at most, none of them a sum.
#include "transform/sum_batches.h"

#include "ir/builder.h"
#include "transform/nouns.h"
#include "transform/rebuild.h"

#include <kiln/shape.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace kiln::transform {
namespace {

constexpr std::int64_t kLeastResult = 128;  // elements: fewer leave most of a tile unused
constexpr std::int64_t kMostTerms = std::int64_t{1}
                                    << 20;  // of a sum: rows of an operand whose places a plan holds

class Merger {
 public:
  explicit Merger(Graph& graph) : g_(graph), add_(graph) {}

  Renumbering run() {
    count_readers();
    return rebuild(g_, [&](NodeId id, const GraphNode& n) {
      if (alone_[id])
        if (const auto product = product_of(n)) return *product;
      return add_.push(n);
    });
  }

 private:
  /// Which sums alone read a product.
  void count_readers() {
    std::vector<int> readers(g_.size());
    for (const GraphNode& n : g_.nodes)
      for (const NodeId in : n.in) ++readers[in];
    for (const NodeId root : g_.roots) ++readers[root];
    alone_.assign(g_.size(), false);
    for (NodeId id = 0; id < g_.size(); ++id) {
      const GraphNode& n = g_[id];
      if (n.op != Op::reduce_sum) continue;
      const GraphNode& of = g_[n.in[0]];
      alone_[id] = of.op == Op::matmul && !of.held && readers[n.in[0]] == 1 && of.dtype == n.dtype &&
                   n.dtype != DType::Bool;
    }
  }

  /// An operand with its batches inside the axis that is summed, as a matrix. Nothing: it has not all of
  /// them.
  std::optional<NodeId> matrix(NodeId operand, ir::Dims result, bool left) {
    const std::vector<std::int64_t> dims(g_[operand].dims.begin(), g_[operand].dims.end());
    const std::size_t rank = dims.size();
    if (rank != result.size() || !std::equal(dims.begin(), dims.end() - 2, result.begin()))
      return std::nullopt;
    std::int64_t batches = 1;
    for (std::size_t a = 0; a + 2 < rank; ++a) batches *= dims[a];
    if (batches * (left ? dims[rank - 1] : dims[rank - 2]) > kMostTerms) return std::nullopt;
    if (!left)
      return add_.add(Op::reshape, {operand}, {}, {.dims = Shape{batches * dims[rank - 2], dims[rank - 1]}});
    ir::Permute order;
    order.show(0, rank - 2);
    for (std::size_t a = 0; a + 2 < rank; ++a) order.show(a + 1, a);
    order.show(rank - 1, rank - 1);
    const NodeId turned = add_.add(Op::permute, {operand}, order);
    return add_.add(Op::reshape, {turned}, {}, {.dims = Shape{dims[rank - 2], batches * dims[rank - 1]}});
  }

  std::optional<NodeId> product_of(const GraphNode& n) {
    const NodeId products = n.in[0];
    const std::vector<std::int64_t> dims(g_[products].dims.begin(), g_[products].dims.end());
    const std::size_t rank = dims.size();
    const auto over = ir::attributes<ir::Reduce>(n);
    bool all = rank > 2 && !over.over(rank - 1) && !over.over(rank - 2), any = false;
    for (std::size_t a = 0; a + 2 < rank; ++a) {
      all &= dims[a] == 1 || over.over(a);
      any |= dims[a] > 1;
    }
    if (!all || !any || dims[rank - 2] * dims[rank - 1] < kLeastResult || g_[products].numel == 0)
      return std::nullopt;
    const NodeId x = g_[products].in[0], y = g_[products].in[1];
    if (g_[x].dims.back() == 0) return std::nullopt;
    add_.loc = n.loc;
    const auto a = matrix(x, dims, true);
    if (!a) return std::nullopt;
    const auto b = matrix(y, dims, false);
    if (!b) return std::nullopt;
    const NodeId product = add_.add(Op::matmul, {*a, *b});
    const NodeId out = add_.add(Op::reshape, {product}, {}, {.dims = n.dims});
    g_[out].held = n.held;
    return out;
  }

  Graph& g_;
  ir::Builder add_;
  std::vector<bool> alone_;
};

}  // namespace

Renumbering sum_batches(Graph& graph) { return Merger(graph).run(); }

}  // namespace kiln::transform
