// Names of regions by their operations alone: the planner knows rows, nests and slabs, and no softmax.
#include "inspect/region_kind.h"

#include <algorithm>

namespace kiln::engine {
namespace {

using ir::Op;

class Namer {
 public:
  Namer(const ir::Graph& g, const plan::Regions& regions, const plan::Region& r)
      : g_(g), regions_(regions), r_(r) {}

  RegionKind name() const {
    switch (r_.kind) {
      case plan::Region::Kind::Attention: return RegionKind::Attention;
      case plan::Region::Kind::PairSums: return RegionKind::AttentionGradient;
      case plan::Region::Kind::Loop: return RegionKind::WholeLoop;
      case plan::Region::Kind::Contraction: return product(r_.product);
      case plan::Region::Kind::Library: return library();
      case plan::Region::Kind::Fused: return fused();
    }
    return RegionKind::Elementwise;
  }

 private:
  template <class F>
  bool any(F f) const {
    return std::any_of(r_.nodes.begin(), r_.nodes.end(), [&](ir::NodeId id) { return f(g_[id].op); });
  }
  bool has(Op op) const {
    return any([&](Op o) { return o == op; });
  }

  RegionKind library() const {
    switch (g_[r_.nodes.front()].op) {
      case Op::matmul: return product(r_.nodes.front());
      case Op::scatter: return RegionKind::Scatter;
      case Op::sort:
      case Op::argsort:
      case Op::sort_with_positions: return RegionKind::Sort;
      case Op::custom: return RegionKind::Custom;
      default: return RegionKind::Library;
    }
  }

  /// Whether an operand of a node is fewer elements than its result, each of them several times.
  bool is_repeated(ir::NodeId id, const ir::GraphNode& in) const {
    while (ir::is_view(g_[id].op) && g_[id].numel == in.numel) id = g_[id].in[0];
    return g_[id].numel < in.numel;
  }

  RegionKind product(ir::NodeId product) const {
    std::size_t biases = 0, activations = 0, others = 0;
    for (ir::NodeId id : r_.nodes) {
      const ir::GraphNode& n = g_[id];
      if (id == product || n.op == Op::cast) continue;
      if (n.op == Op::add &&
          std::any_of(n.in.begin(), n.in.end(), [&](ir::NodeId in) { return is_repeated(in, n); }))
        ++biases;
      else if (n.in.size() == 1 && ir::is_elementwise(n.op))
        ++activations;
      else
        ++others;
    }
    const bool convolves = reads_windows(product);
    if (others > 0 || biases > 1 || activations > 1)
      return convolves ? RegionKind::ConvolutionEpilogue
             : gates() ? RegionKind::ProductSwiGlu
                       : RegionKind::ProductEpilogue;
    if (biases && activations)
      return convolves ? RegionKind::ConvolutionBiasActivation : RegionKind::ProductBiasActivation;
    if (biases) return convolves ? RegionKind::ConvolutionBias : RegionKind::ProductBias;
    if (activations) return convolves ? RegionKind::ConvolutionActivation : RegionKind::ProductActivation;
    return convolves ? RegionKind::Convolution : RegionKind::Product;
  }

  /// Whether an operand of a product shows windows: what a convolution multiplies its weights with.
  bool reads_windows(ir::NodeId product) const {
    return std::ranges::any_of(g_[product].in, [&](ir::NodeId id) {
      while (ir::is_view(g_[id].op) && g_[id].op != Op::sliding_window) id = g_[id].in[0];
      return g_[id].op == Op::sliding_window;
    });
  }

  /// The value that a node shows by views and casts.
  ir::NodeId shown_by(ir::NodeId id) const {
    while (ir::is_view(g_[id].op) || g_[id].op == Op::cast) id = g_[id].in[0];
    return id;
  }

  /// Whether a node is silu(x): the operation, or x times sigmoid(x).
  bool is_silu(ir::NodeId id) const {
    const ir::GraphNode& n = g_[id];
    if (n.op == Op::silu) return true;
    if (n.op != Op::multiply) return false;
    const ir::NodeId x = shown_by(n.in[0]), y = shown_by(n.in[1]);
    return (g_[x].op == Op::sigmoid && shown_by(g_[x].in[0]) == y) ||
           (g_[y].op == Op::sigmoid && shown_by(g_[y].in[0]) == x);
  }

  /// Whether the region has silu(x) times another value.
  bool gates() const {
    return std::ranges::any_of(r_.nodes, [&](ir::NodeId id) {
      const ir::GraphNode& n = g_[id];
      if (n.op != Op::multiply || is_silu(id)) return false;
      for (std::size_t k = 0; k < 2; ++k) {
        const ir::NodeId gate = shown_by(n.in[k]), other = shown_by(n.in[1 - k]);
        if (is_silu(gate) && ir::info(g_[other].op).kind != ir::OpKind::Scalar) return true;
      }
      return false;
    });
  }

  RegionKind fused() const {
    const bool reduces = any([](Op op) { return ir::is_reduce(op); });
    if (any([](Op op) { return ir::is_scan(op); })) return RegionKind::Scan;
    if (!r_.axes.empty()) return r_.nest ? RegionKind::Nest : RegionKind::Slab;
    if (reduces) return stores_full() && depends() ? norm() : RegionKind::Reduction;
    if (any([](Op op) { return op == Op::loop_result || op == Op::loop_stack; })) return RegionKind::Loop;
    const bool copies =
        std::all_of(r_.nodes.begin(), r_.nodes.end(), [&](ir::NodeId id) { return ir::is_view(g_[id].op); });
    if (copies) return RegionKind::Copy;
    return gates() ? RegionKind::SwiGlu : RegionKind::Elementwise;
  }

  bool is_row(ir::NodeId id) const { return std::binary_search(r_.rows.begin(), r_.rows.end(), id); }
  bool stores_full() const {
    return std::any_of(r_.outputs.begin(), r_.outputs.end(), [&](ir::NodeId id) { return !is_row(id); });
  }

  /// The first reduction of the region that a value is made of, through nodes that are not stored.
  bool made_of_reduction(ir::NodeId id, std::vector<bool>& seen) const {
    if (seen[id]) return false;
    seen[id] = true;
    const bool own = std::binary_search(r_.nodes.begin(), r_.nodes.end(), id);
    if (!own && regions_.stored[id]) return false;
    if (own && ir::is_reduce(g_[id].op)) return true;
    return std::any_of(g_[id].in.begin(), g_[id].in.end(),
                       [&](ir::NodeId in) { return made_of_reduction(in, seen); });
  }

  /// Whether a stored value of the whole domain is made of a reduction.
  bool depends() const {
    std::vector<bool> seen(g_.size());
    return std::any_of(r_.outputs.begin(), r_.outputs.end(), [&](ir::NodeId id) {
      return !is_row(id) && !ir::is_reduce(g_[id].op) && made_of_reduction(id, seen);
    });
  }

  RegionKind norm() const {
    const bool exponentials = has(Op::exp) || has(Op::exp2);
    if (exponentials && has(Op::reduce_sum) && (has(Op::reduce_max) || !has(Op::multiply)))
      return RegionKind::Softmax;
    for (ir::NodeId id : r_.nodes) {
      if (ir::is_reduce(g_[id].op)) return RegionKind::Norm;
      const ir::GraphNode& n = g_[id];
      if (n.op == Op::add && !is_repeated(n.in[0], n) && !is_repeated(n.in[1], n))
        return RegionKind::ResidualNorm;
    }
    return RegionKind::Norm;
  }

  const ir::Graph& g_;
  const plan::Regions& regions_;
  const plan::Region& r_;
};

}  // namespace

RegionKind kind_of(const ir::Graph& graph, const plan::Regions& regions, const plan::Region& region) {
  return Namer(graph, regions, region).name();
}

}  // namespace kiln::engine
