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
      case plan::Region::Kind::Contraction:
        return r_.parts.empty() ? product(r_.product) : Namer(g_, regions_, r_.parts.front()).name();
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
    const Op op = g_[r_.nodes.front()].op;
    if (ir::info(op).kind == ir::OpKind::Contraction) return product(r_.nodes.front());
    if (op == Op::sort || op == Op::argsort || op == Op::sort_with_positions) return RegionKind::Sort;
    if (op == Op::scatter) return RegionKind::Scatter;
    return op == Op::custom ? RegionKind::Custom : RegionKind::Library;
  }

  /// Whether an operand of a node is fewer elements than its result, each of them several times.
  bool is_repeated(ir::NodeId id, const ir::GraphNode& in) const {
    while (ir::is_view(g_[id].op) && g_[id].numel == in.numel) id = g_[id].in[0];
    return g_[id].numel < in.numel;
  }

  /// What the maps of a product do. Values of fewer elements than its result are theirs, not its own.
  struct Maps {
    std::size_t biases = 0, activations = 0, scales = 0, shifts = 0, others = 0;
    std::size_t all() const { return biases + activations + scales + shifts + others; }
    /// (x - m) * s + b, each of m, s and b a value of the channel.
    bool normalise() const { return scales > 0 && activations <= 1 && others == 0; }
  };
  Maps maps_of(ir::NodeId product) const {
    Maps out;
    for (ir::NodeId id : r_.nodes) {
      const ir::GraphNode& n = g_[id];
      if (id == product || n.op == Op::cast || n.numel < g_[product].numel) continue;
      const bool repeats = std::ranges::any_of(n.in, [&](ir::NodeId in) { return is_repeated(in, n); });
      const bool by_channel = std::ranges::any_of(
          n.in, [&](ir::NodeId in) { return is_repeated(in, n) && g_[shown_by(in)].numel > 1; });
      if (n.op == Op::add && repeats)
        ++out.biases;
      else if (n.op == Op::subtract && by_channel)
        ++out.shifts;
      else if ((n.op == Op::multiply || n.op == Op::divide) && by_channel)
        ++out.scales;
      else if (n.in.size() == 1 && ir::is_elementwise(n.op))
        ++out.activations;
      else
        ++out.others;
    }
    return out;
  }

  RegionKind product(ir::NodeId product) const {
    const Maps maps = maps_of(product);
    if (reads_windows(product)) return convolution(maps);
    const bool plain =
        maps.others + maps.scales + maps.shifts == 0 && maps.biases <= 1 && maps.activations <= 1;
    if (!plain && gates()) return RegionKind::ProductSwiGlu;
    if (is_batched(product))
      return maps.all() > 0 ? RegionKind::BatchedProductEpilogue : RegionKind::BatchedProduct;
    if (!plain) return RegionKind::ProductEpilogue;
    if (maps.biases > 0)
      return maps.activations > 0 ? RegionKind::ProductBiasActivation : RegionKind::ProductBias;
    return maps.activations > 0 ? RegionKind::ProductActivation : RegionKind::Product;
  }

  static RegionKind convolution(const Maps& maps) {
    const bool activates = maps.activations > 0;
    if (maps.normalise())
      return activates ? RegionKind::ConvolutionNormActivation : RegionKind::ConvolutionNorm;
    if (maps.others + maps.scales + maps.shifts > 0 || maps.biases > 1 || maps.activations > 1)
      return RegionKind::ConvolutionEpilogue;
    if (maps.biases > 0)
      return activates ? RegionKind::ConvolutionBiasActivation : RegionKind::ConvolutionBias;
    return activates ? RegionKind::ConvolutionActivation : RegionKind::Convolution;
  }

  /// Whether a product is of several pairs of different matrices.
  bool is_batched(ir::NodeId product) const {
    return std::ranges::all_of(g_[product].in, [&](ir::NodeId in) {
      const ir::GraphNode& n = g_[in];
      const std::size_t rank = n.dims.size();
      return rank > 2 && n.numel > n.dims[rank - 2] * n.dims[rank - 1] &&
             g_[shown_by(in)].numel > n.dims[rank - 2] * n.dims[rank - 1];
    });
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
    if (reduces && stores_full() && depends()) return norm();
    if (reduces) return maps_rows() ? RegionKind::MapsReduction : RegionKind::Reduction;
    if (any([](Op op) { return op == Op::loop_result || op == Op::loop_stack; })) return RegionKind::Loop;
    const bool copies =
        std::all_of(r_.nodes.begin(), r_.nodes.end(), [&](ir::NodeId id) { return ir::is_view(g_[id].op); });
    if (copies) return RegionKind::Copy;
    if (gates()) return RegionKind::SwiGlu;
    return moves() ? RegionKind::Transformed : RegionKind::Elementwise;
  }

  /// Whether values of whole rows are computed, not only read.
  bool maps_rows() const {
    return std::ranges::any_of(r_.nodes,
                               [&](ir::NodeId id) { return ir::is_elementwise(g_[id].op) && !is_row(id); });
  }

  /// Whether a map reads an operand at other points than its own.
  bool moves() const {
    return std::ranges::any_of(r_.nodes, [&](ir::NodeId id) {
      return ir::info(g_[id].op).kind == ir::OpKind::Gather ||
             std::ranges::any_of(g_[id].in, [&](ir::NodeId in) { return is_moved(in); });
    });
  }
  bool is_moved(ir::NodeId id) const {
    for (; ir::is_view(g_[id].op) && !regions_.stored[id]; id = g_[id].in[0])
      if (g_[id].op != Op::reshape && g_[id].op != Op::broadcast && g_[id].op != Op::alias) return true;
    return false;
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
