// Terminates: one walk in topological order; a difference becomes three nodes for each map below it, of which
// there are at most kMostMaps.
#include "transform/center_products.h"

#include "ir/builder.h"
#include "transform/rebuild.h"

#include <kiln/shape.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace kiln::transform {
namespace {

constexpr std::size_t kMostMaps = 6;
constexpr std::int64_t kMuchSmaller = 8;

class Centerer {
 public:
  Centerer(Graph& graph, const NestCosts& costs)
      : g_(graph), costs_(costs), readers_(graph.size()), add_(graph) {
    for (const NodeId root : graph.roots) ++readers_[root];
    for (NodeId id = 0; id < graph.size(); ++id) {
      for (const NodeId in : graph[id].in) ++readers_[in];
      if (graph[id].held) ++readers_[id];
    }
    bool any = false;
    for (NodeId id = 0; id < graph.size(); ++id) {
      found_.push_back(find(graph[id]));
      any |= found_.back().has_value();
    }
    if (any) old_ = graph.nodes;
  }

  Renumbering run() {
    return rebuild(g_, [&](NodeId id, const GraphNode& n) {
      now_.push_back(found_[id] ? difference(n, *found_[id]) : add_.push(n));
      return now_.back();
    });
  }

 private:
  struct Found {                 // as they were
    std::vector<NodeId> linear;  // the minuend, what it is made of, …, the product
    NodeId mean;
    std::size_t number;  // the mean's operand that is no sum
  };

  bool is_number(NodeId id) const { return g_[id].numel == 1 && g_[id].dtype == DType::Float32; }
  NodeId without_views(NodeId id) const {
    while (g_[id].op == Op::reshape || g_[id].op == Op::broadcast) id = g_[id].in[0];
    return id;
  }
  bool is_row(NodeId id, const GraphNode& of) const {
    const ir::Dims dims = g_[without_views(id)].dims;
    return g_[id].dtype == DType::Float32 && !dims.empty() && dims.back() == of.dims.back() &&
           g_[without_views(id)].numel == dims.back() && g_[id].dims.back() == dims.back();
  }

  /// What a value shows to its only reader.
  std::optional<NodeId> shown(NodeId id) const {
    while (readers_[id] == 1 && (g_[id].op == Op::reshape || g_[id].op == Op::broadcast)) id = g_[id].in[0];
    return readers_[id] == 1 ? std::optional(id) : std::nullopt;
  }

  std::optional<Found> find(const GraphNode& n) const {
    if (n.op != Op::subtract || n.dtype != DType::Float32 || costs_.results == 0 || n.dims.size() != 2)
      return std::nullopt;
    const NodeId x = n.in[0];
    const std::optional<NodeId> mean = shown(n.in[1]);
    if (!mean || g_[x].numel != n.numel || readers_[x] != 2 ||
        (g_[*mean].op != Op::divide && g_[*mean].op != Op::multiply))
      return std::nullopt;
    for (std::size_t k = 0; k < 2; ++k) {
      const std::optional<NodeId> sum = shown(g_[*mean].in[k]);
      if (!sum || g_[*sum].op != Op::reduce_sum || g_[*sum].in[0] != x ||
          ir::attributes<ir::Reduce>(g_[*sum]).mask != std::uint64_t{1} << (n.dims.size() - 1) ||
          !is_number(g_[*mean].in[1 - k]) || (k == 1 && g_[*mean].op == Op::divide))
        continue;
      std::vector<NodeId> linear = made_of_product(x);
      if (!linear.empty()) return Found{std::move(linear), *mean, 1 - k};
    }
    return std::nullopt;
  }

  /// A value that is a product, times numbers, with rows added, and what it is made of. Empty: it is not.
  std::vector<NodeId> made_of_product(NodeId id) const {
    std::vector<NodeId> linear;
    while (linear.size() < kMostMaps) {
      const GraphNode& n = g_[id];
      if (n.dtype != DType::Float32 || (!linear.empty() && readers_[id] != 1)) break;
      linear.push_back(id);
      if (n.op == Op::matmul && is_large(n)) return linear;
      if (n.op != Op::multiply && n.op != Op::add) break;
      const auto passes = [&](std::size_t k) {
        return n.op == Op::multiply ? is_number(n.in[k]) : is_row(n.in[k], n);
      };
      if (!passes(0) && !passes(1)) break;
      id = n.in[passes(1) ? 0 : 1];
      if (g_[id].numel != n.numel) break;
    }
    return {};
  }
  bool is_large(const GraphNode& product) const {
    const std::int64_t terms = g_[product.in[0]].dims.back();
    return product.dims.size() == 2 && product.dims[0] >= costs_.rows && product.numel >= costs_.results &&
           terms <= costs_.most_terms && g_[product.in[1]].numel * kMuchSmaller <= product.numel;
  }

  /// A value less its mean along the last axis; `x`: as it is now.
  NodeId centered(NodeId x, const Found& f) {
    const GraphNode& mean = old_[f.mean];
    const std::uint64_t last = std::uint64_t{1} << (g_[x].dims.size() - 1);
    const NodeId sum = add_.add(Op::reduce_sum, {x}, ir::Reduce{last}), number = now_[mean.in[f.number]];
    return add_.add(Op::subtract, {x, add_.add(mean.op, {sum, number})});
  }

  NodeId difference(const GraphNode& n, const Found& f) {
    add_.loc = n.loc;
    const GraphNode& product = old_[f.linear.back()];
    NodeId made = add_.add(Op::matmul, {now_[product.in[0]], centered(now_[product.in[1]], f)});
    for (std::size_t i = f.linear.size() - 1; i-- > 0;) {
      const GraphNode& map = old_[f.linear[i]];
      const NodeId other = map.in[map.in[0] == f.linear[i + 1] ? 1 : 0];
      NodeId beside = now_[other];
      if (map.op == Op::add) {
        const Shape row{1, n.dims.back()};
        beside = centered(add_.add(Op::reshape, {without_views(beside)}, {}, {.dims = row}), f);
      }
      made = add_.add(map.op, {made, beside});
    }
    g_[made].held |= n.held;
    return made;
  }

  Graph& g_;
  const NestCosts costs_;
  std::vector<int> readers_;
  std::vector<std::optional<Found>> found_;
  std::vector<GraphNode> old_;
  std::vector<NodeId> now_;
  ir::Builder add_;
};

}  // namespace

Renumbering center_products(Graph& graph, const NestCosts& costs) { return Centerer(graph, costs).run(); }

}  // namespace kiln::transform
