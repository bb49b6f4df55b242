// Terminates: one walk in topological order; a sum becomes a few nodes for each of its factors, none of which
// is looked at.
#include "transform/reuse_products.h"

#include "ir/builder.h"
#include "transform/nouns.h"
#include "transform/rebuild.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

namespace kiln::transform {
namespace {

constexpr std::size_t kMostFactors = 16;

class Reuse {
 public:
  explicit Reuse(Graph& graph) : g_(graph), add_(graph) {}

  Renumbering run() {
    find();
    return rebuild(g_, [&](NodeId id, const GraphNode& n) {
      now_.push_back(made(id, n));
      return now_.back();
    });
  }

 private:
  /// Nodes that are multiplied, and whether each one divides.
  using Factors = std::vector<std::pair<NodeId, bool>>;
  struct Product {
    Factors factors;  // sorted
    bool negative = false;
  };
  /// A sum over the last axis of w·(a bᵀ), and the product o.
  struct Found {
    NodeId a, o;
    Factors others;  // values of a row alone
    bool negative;
  };

  void find() {
    found_.assign(g_.size(), std::nullopt);
    std::vector<NodeId> products;
    for (NodeId id = 0; id < g_.size(); ++id)
      if (g_[id].op == Op::matmul && is_float(g_[id].dtype)) products.push_back(id);
    for (NodeId id = 0; id < g_.size(); ++id)
      if (g_[id].op == Op::reduce_sum && is_float(g_[id].dtype)) found_[id] = sum(id, products);
  }

  std::optional<Found> sum(NodeId id, const std::vector<NodeId>& products) const {
    const NodeId of = g_[id].in[0];
    const std::size_t rank = g_[of].dims.size();
    if (rank < 2 || g_[id].dims.size() != rank ||
        ir::attributes<ir::Reduce>(g_[id]).mask != std::uint64_t{1} << (rank - 1))
      return std::nullopt;
    const auto [all, negative] = factors(of);
    for (std::size_t f = 0; f < all.size(); ++f) {
      const auto [product, divides] = all[f];
      const GraphNode& p = g_[product];
      if (divides || p.op != Op::matmul || !is_float(p.dtype)) continue;
      if (g_[p.in[0]].dims.back() >= g_[of].dims.back()) continue;
      Factors weight = all;
      weight.erase(weight.begin() + static_cast<std::ptrdiff_t>(f));
      if (weight.empty()) continue;
      for (const NodeId o : products) {
        if (o > id || !same_dims(o, p.in[0]) || !are_turned(p.in[1], g_[o].in[1])) continue;
        const auto [have, other] = factors(g_[o].in[0]);
        Factors others;
        std::ranges::set_difference(weight, have, std::back_inserter(others));
        if (others.size() + have.size() != weight.size()) continue;
        for (auto& other : others) other.first = of_row(other.first);
        if (std::ranges::all_of(others, [&](const auto& x) { return x.first != ir::kNoNode; }))
          return Found{p.in[0], o, std::move(others), negative != other};
      }
    }
    return std::nullopt;
  }

  /// What a value is or repeats along the last axis, or kNoNode.
  NodeId of_row(NodeId id) const {
    const auto is_row = [&](NodeId x) { return g_[x].dims.size() == 0 || g_[x].dims.back() == 1; };
    if (is_row(id)) return id;
    return g_[id].op == Op::broadcast && is_row(g_[id].in[0]) ? g_[id].in[0] : ir::kNoNode;
  }

  bool same_dims(NodeId x, NodeId y) const { return std::ranges::equal(g_[x].dims, g_[y].dims); }

  /// Whether two nodes show the same values with the last two axes exchanged.
  bool are_turned(NodeId x, NodeId y) const {
    const auto [of_x, x_axes] = shown(x);
    auto [of_y, y_axes] = shown(y);
    if (of_x != of_y || y_axes.size() < 2) return false;
    std::swap(y_axes[y_axes.size() - 1], y_axes[y_axes.size() - 2]);
    return x_axes == y_axes;
  }
  /// What a node shows, and which of its axes stand where.
  std::pair<NodeId, std::vector<std::size_t>> shown(NodeId id) const {
    std::vector<std::size_t> axes(g_[id].dims.size());
    const bool permutes = g_[id].op == Op::permute;
    for (std::size_t a = 0; a < axes.size(); ++a)
      axes[a] = permutes ? static_cast<std::size_t>(ir::attributes<ir::Permute>(g_[id])[a]) : a;
    return {permutes ? g_[id].in[0] : id, std::move(axes)};
  }

  /// What is no product of others is its own factor.
  Product factors(NodeId id) const {
    Product product;
    Factors& out = product.factors;
    Factors stack{{id, false}};
    while (!stack.empty()) {
      const auto [at, divides] = stack.back();
      stack.pop_back();
      const GraphNode& n = g_[at];
      const bool splits = out.size() + stack.size() < kMostFactors;
      if (n.op == Op::cast && is_float(n.dtype) && is_float(g_[n.in[0]].dtype)) {
        stack.emplace_back(n.in[0], divides);
      } else if (n.op == Op::negative) {
        product.negative = !product.negative;
        stack.emplace_back(n.in[0], divides);
      } else if (splits && n.op == Op::multiply) {
        stack.emplace_back(n.in[0], divides);
        stack.emplace_back(n.in[1], divides);
      } else if (splits && n.op == Op::divide) {
        stack.emplace_back(n.in[0], divides);
        stack.emplace_back(n.in[1], !divides);
      } else {
        out.emplace_back(at, divides);
      }
    }
    std::ranges::sort(out);
    return product;
  }

  NodeId made(NodeId id, const GraphNode& n) {
    if (!found_[id]) return add_.push(n);
    add_.loc = n.loc;
    const auto as = [&](NodeId x) {
      return g_[x].dtype == n.dtype ? x : add_.add(Op::cast, {x}, {}, {.dtype = n.dtype});
    };
    const NodeId a = as(now_[found_[id]->a]), o = as(now_[found_[id]->o]);
    NodeId out = add_.add(Op::reduce_sum, {add_.add(Op::multiply, {a, o})}, ir::attributes<ir::Reduce>(n));
    for (const auto& [of_row, divides] : found_[id]->others) {
      NodeId row = as(now_[of_row]);
      if (!std::ranges::equal(g_[row].dims, n.dims))
        row = add_.add(Op::broadcast, {row}, {}, {.dims = n.dims});
      out = add_.add(divides ? Op::divide : Op::multiply, {out, row});
    }
    if (found_[id]->negative) out = add_.add(Op::negative, {out});
    g_[out].held = n.held;
    return out;
  }

  Graph& g_;
  ir::Builder add_;
  std::vector<std::optional<Found>> found_;  // by node
  Renumbering now_;
};

}  // namespace

Renumbering reuse_products(Graph& graph) { return Reuse(graph).run(); }

}  // namespace kiln::transform
