// Terminates: one walk in topological order; a sum becomes eight nodes at most, none of them a sum.
#include "transform/find_products.h"

#include "ir/builder.h"
#include "transform/nouns.h"
#include "transform/only_reduced.h"
#include "transform/rebuild.h"

#include <kiln/shape.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace kiln::transform {
namespace {

constexpr std::int64_t kLeastFree = 8;          // results that read an element of an operand
constexpr std::int64_t kLeastSum = 4;           // elements of a sum
constexpr std::int64_t kLeastWork = 1 << 12;    // multiply-adds
constexpr std::int64_t kManyResults = 1 << 22;  // whose memory takes longer than a second kernel

/// An operand of the multiplication without its broadcasts, and the axes of the multiplication that it has.
struct Operand {
  NodeId node;
  std::vector<bool> has;
};

/// What the axes of a multiplication are to the product.
struct Roles {
  std::vector<std::size_t> batch;
  std::optional<std::size_t> m, n, k;
};

class Finder {
 public:
  Finder(Graph& graph, std::int64_t most_nested)
      : g_(graph), most_nested_(most_nested), reduced_(graph), add_(graph) {}

  Renumbering run() {
    return rebuild(g_, [&](NodeId id, const GraphNode& n) {
      if (n.op == Op::reduce_sum && is_float(n.dtype) && g_[n.in[0]].op == Op::multiply)
        if (const auto product = product_of(n, id)) return *product;
      return add_.push(n);
    });
  }

 private:
  Operand operand(NodeId id, ir::Dims all) const {
    while (g_[id].op == Op::broadcast) id = g_[id].in[0];
    const ir::Dims dims = g_[id].dims;
    Operand o{id, std::vector<bool>(all.size())};
    for (std::size_t a = 0; a < dims.size(); ++a) o.has[all.size() - dims.size() + a] = dims[a] != 1;
    return o;
  }

  /// Nothing: it is no matrix product, or none that pays.
  static std::optional<Roles> roles(const Operand& x, const Operand& y, ir::Dims dims,
                                    const ir::Reduce& sum) {
    Roles r;
    const auto only = [](std::optional<std::size_t>& role, std::size_t axis) {
      if (role) return false;
      role = axis;
      return true;
    };
    for (std::size_t a = 0; a < dims.size(); ++a) {
      if (dims[a] == 1) continue;
      const bool in_x = x.has[a], in_y = y.has[a];
      bool fits = in_x || in_y;
      if (sum.over(a))
        fits = in_x && in_y && only(r.k, a);
      else if (in_x && in_y)
        r.batch.push_back(a);
      else if (fits)
        fits = only(in_x ? r.m : r.n, a);
      if (!fits) return std::nullopt;
    }
    if (!r.m || !r.n || !r.k) return std::nullopt;
    const std::int64_t m = dims[*r.m], n = dims[*r.n], k = dims[*r.k];
    if (std::min(m, n) < kLeastFree || k < kLeastSum || m * n * k < kLeastWork) return std::nullopt;
    return r;
  }

  /// An operand with these axes of the multiplication, in this order, and no others.
  NodeId ordered(const Operand& x, ir::Dims all, const std::vector<std::size_t>& axes) {
    Shape kept;
    std::vector<std::size_t> present;
    for (std::size_t a = 0; a < all.size(); ++a) {
      if (!x.has[a]) continue;
      kept.push_back(all[a]);
      present.push_back(a);
    }
    NodeId id = add_.add(Op::reshape, {x.node}, {}, {.dims = kept});
    ir::Permute order;
    for (std::size_t a = 0; a < axes.size(); ++a)
      order.show(
          a, static_cast<std::size_t>(std::find(present.begin(), present.end(), axes[a]) - present.begin()));
    return std::is_sorted(axes.begin(), axes.end()) ? id : add_.add(Op::permute, {id}, order);
  }

  /// `was`: its number before the pass.
  std::optional<NodeId> product_of(const GraphNode& n, NodeId was) {
    const NodeId products = n.in[0];
    if (g_[products].held || g_[products].dtype != n.dtype) return std::nullopt;
    const std::vector<std::int64_t> dims(g_[products].dims.begin(), g_[products].dims.end());
    const Operand x = operand(g_[products].in[0], dims), y = operand(g_[products].in[1], dims);
    const auto found = roles(x, y, dims, ir::attributes<ir::Reduce>(n));
    if (!found) return std::nullopt;
    if (n.dtype == DType::Float32 && dims[*found->k] <= most_nested_ && *found->k + 1 == dims.size() &&
        n.numel >= kManyResults && reduced_.contains(was))
      return std::nullopt;
    add_.loc = n.loc;
    std::vector<std::size_t> of_x = found->batch, of_y = of_x, of_result = of_x;
    of_x.insert(of_x.end(), {*found->m, *found->k});
    of_y.insert(of_y.end(), {*found->k, *found->n});
    of_result.insert(of_result.end(), {*found->m, *found->n});
    const NodeId a = ordered(x, dims, of_x), b = ordered(y, dims, of_y);
    NodeId out = add_.add(Op::matmul, {a, b});
    std::vector<std::size_t> sorted = of_result;
    std::sort(sorted.begin(), sorted.end());
    if (sorted != of_result) {
      ir::Permute back;
      for (std::size_t axis = 0; axis < sorted.size(); ++axis)
        back.show(axis, static_cast<std::size_t>(std::find(of_result.begin(), of_result.end(), sorted[axis]) -
                                                 of_result.begin()));
      out = add_.add(Op::permute, {out}, back);
    }
    out = add_.add(Op::reshape, {out}, {}, {.dims = n.dims});
    g_[out].held = n.held;
    return out;
  }

  Graph& g_;
  const std::int64_t most_nested_;
  const OnlyReduced reduced_;
  ir::Builder add_;
};

}  // namespace

Renumbering find_products(Graph& graph, std::int64_t most_nested) { return Finder(graph, most_nested).run(); }

}  // namespace kiln::transform
