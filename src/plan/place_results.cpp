// Terminates: one walk in topological order; a product gets three more nodes.
#include "plan/place_results.h"

#include "ir/builder.h"
#include "ir/layout.h"
#include "transform/rebuild.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace kiln::plan {
namespace {

using ir::GraphNode;
using ir::kNoNode;
using ir::Op;

constexpr int kMostWalked = 400;  // nodes between two products

class Placer {
 public:
  explicit Placer(ir::Graph& g) : g_(g), add_(g) {}

  transform::Renumbering run() {
    find();
    return transform::rebuild(g_, [&](NodeId id, const GraphNode& n) {
      const NodeId product = add_.push(n);
      return order_[id] ? arranged(product, *order_[id]) : product;
    });
  }

 private:
  using Axes = std::vector<std::size_t>;

  void find() {
    order_.resize(g_.size());
    std::vector<bool> root(g_.size());
    for (const NodeId r : g_.roots) root[r] = true;
    for (NodeId id = 0; id < g_.size(); ++id) {
      if (g_[id].op != Op::reshape || g_[g_[id].in[0]].op != Op::permute) continue;
      auto [product, axes] = permuted(g_[id].in[0]);
      const GraphNode& p = g_[product];
      if (p.op != Op::matmul || !is_half(p.dtype) || p.numel == 0 || p.held || root[product]) continue;
      // rows of the result stay adjacent elements
      if (order_[product] || axes.back() + 1 != axes.size() || std::ranges::is_sorted(axes)) continue;
      if (resolve_alias(g_, id).base == kNoNode && looks_like_weights(p.in[0])) order_[product] = axes;
    }
  }

  /// What permutations show, and which of its axes stand where.
  std::pair<NodeId, Axes> permuted(NodeId id) const {
    Axes axes(g_[id].dims.size());
    for (std::size_t a = 0; a < axes.size(); ++a) axes[a] = a;
    for (; g_[id].op == Op::permute; id = g_[id].in[0])
      for (std::size_t& a : axes) a = ir::attributes<ir::Permute>(g_[id])[a];
    return {id, std::move(axes)};
  }

  /// Whether a product of as many elements, and a reduction of them, are what an operand is made of.
  bool looks_like_weights(NodeId operand) const {
    const std::int64_t numel = g_[operand].numel;
    std::vector<NodeId> stack{operand};
    std::vector<bool> seen(operand + 1);
    bool product = false, reduction = false;
    for (int walked = 0; !stack.empty() && walked < kMostWalked && !(product && reduction); ++walked) {
      const NodeId id = stack.back();
      stack.pop_back();
      if (seen[id]) continue;
      seen[id] = true;
      const GraphNode& n = g_[id];
      product |= n.op == Op::matmul && n.numel == numel;
      reduction |= ir::is_reduce(n.op) && g_[n.in[0]].numel == numel;
      if (ir::is_elementwise(n.op) || ir::is_view(n.op) || ir::is_reduce(n.op))
        stack.insert(stack.end(), n.in.begin(), n.in.end());
    }
    return product && reduction;
  }

  NodeId arranged(NodeId product, const Axes& axes) {
    add_.loc = g_[product].loc;
    ir::Permute there, back;
    for (std::size_t a = 0; a < axes.size(); ++a) {
      there.show(a, axes[a]);
      back.show(axes[a], a);
    }
    const NodeId stored = add_.add(Op::arrange, {add_.add(Op::permute, {product}, there)});
    return add_.add(Op::permute, {stored}, back);
  }

  ir::Graph& g_;
  ir::Builder add_;
  std::vector<std::optional<Axes>> order_;  // by product: how its axes are stored
};

/// The memory of a result whose axis `a` has a stride of its own.
MatrixMemory memory_of_result(const GraphNode& product, NodeId stored,
                              const std::vector<std::int64_t>& strides) {
  MatrixMemory m;
  const std::size_t rank = product.dims.size();
  m.base = stored;
  m.dtype = product.dtype;
  m.row = strides[rank - 2];
  m.column = strides[rank - 1];
  std::int64_t divisor = 1;
  for (std::size_t a = rank - 2; a-- > 0; divisor *= product.dims[a])
    if (product.dims[a] != 1) m.parts.push_back({divisor, product.dims[a], strides[a]});
  return m;
}

}  // namespace

transform::Renumbering place_results(ir::Graph& graph) { return Placer(graph).run(); }

std::vector<NodeId> only_readers(const Graph& g) {
  std::vector<NodeId> out(g.size(), kNoNode);
  std::vector<int> reads(g.size());
  for (NodeId id = 0; id < g.size(); ++id)
    for (const NodeId in : g[id].in) {
      out[in] = id;
      ++reads[in];
    }
  for (const NodeId r : g.roots) reads[r] += 2;
  for (NodeId id = 0; id < g.size(); ++id)
    if (reads[id] != 1) out[id] = kNoNode;
  return out;
}

void store_arranged(const Graph& g, const std::vector<NodeId>& only_readers, Attention& a) {
  const NodeId permuted = only_readers[a.product];
  if (permuted == kNoNode || g[permuted].op != Op::permute || g[permuted].held || g[a.product].held) return;
  const NodeId stored = only_readers[permuted];
  if (stored == kNoNode || g[stored].op != Op::arrange) return;
  const std::vector<std::int64_t> lies = ir::row_major_strides(g[stored].dims);
  std::vector<std::int64_t> strides(lies.size());
  for (std::size_t axis = 0; axis < lies.size(); ++axis)
    strides[ir::attributes<ir::Permute>(g[permuted])[axis]] = lies[axis];
  if (strides.back() != 1) return;
  a.nodes.insert(a.nodes.end(), {permuted, stored});
  a.result = memory_of_result(g[a.product], stored, strides);
}

}  // namespace kiln::plan
