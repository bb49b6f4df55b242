// Terminates: one walk in topological order; a product gets a few more nodes.
//
// The array is stored by the op `arrange`, and exchanged back behind it, so that all views above it stay as
// they were. Then the axis that is summed over, (channels, elements of a window), becomes (elements,
// channels) in both operands; the other operand, weights in most cases, is stored in that order.
#include "plan/turn_windows.h"

#include "ir/builder.h"
#include "plan/window_view.h"
#include "transform/rebuild.h"

#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace kiln::plan {
namespace {

using ir::GraphNode;
using ir::Op;

class Turner {
 public:
  Turner(ir::Graph& g, const schedule::Target& target) : g_(g), target_(target), add_(g) {}

  transform::Renumbering run() {
    found_.resize(g_.size());
    for (NodeId id = 0; id < g_.size(); ++id)
      if (g_[id].op == Op::matmul) found_[id] = far_channels(g_, target_, id);
    return transform::rebuild(g_, [&](NodeId id, GraphNode n) {
      if (found_[id]) turn(n, *found_[id]);
      return add_.push(n);
    });
  }

 private:
  void turn(GraphNode& product, const FarChannels& far) {
    add_.loc = product.loc;
    const std::size_t which = far.operand, rank = g_[product.in[0]].dims.size();
    const NodeId windows =
        above(product.in[which], far.views, channels_last(array_below(product.in[which], far), far));
    const NodeId other = product.in[1 - which];
    product.in[which] = channels_inside(windows, which == 0 ? rank - 1 : rank - 2, far);
    product.in[1 - which] = stored(other, which == 0 ? rank - 2 : rank - 1, far);
  }

  NodeId array_below(NodeId id, const FarChannels& far) const {
    for (std::size_t i = 0; i < far.views; ++i) id = g_[id].in[0];
    return id;
  }

  /// The array, from memory that has its channels last.
  NodeId channels_last(NodeId array, const FarChannels& far) {
    if (far.adjacent) return array;
    NodeId& turned = turned_[{array, far.axis}];
    if (turned != 0) return turned;
    const std::size_t rank = g_[array].dims.size();
    ir::Permute there, back;
    for (std::size_t a = 0; a < rank; ++a) {
      const std::size_t from = a + 1 == rank ? far.axis : a < far.axis ? a : a + 1;
      there.show(a, from);
      back.show(from, a);
    }
    const NodeId last = add_.add(Op::arrange, {add_.add(Op::permute, {array}, there)});
    return turned = add_.add(Op::permute, {last}, back);
  }

  /// The views of `id`, so many, of `array` instead.
  NodeId above(NodeId id, std::size_t views, NodeId array) {
    if (views == 0) return array;
    GraphNode n = g_[id];
    n.held = false;
    n.in[0] = above(n.in[0], views - 1, array);
    return add_.push(n);
  }

  /// Axis `a` of (channels, elements) as one of (elements, channels).
  NodeId channels_inside(NodeId x, std::size_t a, const FarChannels& far) {
    const Shape dims(g_[x].dims);
    Shape parts;
    ir::Permute exchanged;
    for (std::size_t i = 0; i < g_[x].dims.size(); ++i) {
      const auto at = static_cast<std::size_t>(parts.rank());
      if (i == a) {
        exchanged.show(at, at + 1);
        exchanged.show(at + 1, at);
        parts.push_back(far.channels);
        parts.push_back(dims[static_cast<int>(i)] / far.channels);
      } else {
        exchanged.show(at, at);
        parts.push_back(dims[static_cast<int>(i)]);
      }
    }
    const NodeId split = add_.add(Op::reshape, {x}, {}, {.dims = g_.keep(ir::Dims(parts))});
    return add_.add(Op::reshape, {add_.add(Op::permute, {split}, exchanged)}, {},
                    {.dims = g_.keep(ir::Dims(dims))});
  }

  /// The same of the other operand, in memory of its own; what repeats it stays a view.
  NodeId stored(NodeId x, std::size_t a, const FarChannels& far) {
    const GraphNode n = g_[x];
    if (n.op == Op::broadcast && g_[n.in[0]].dims.size() + a >= n.dims.size()) {
      const std::size_t inner = g_[n.in[0]].dims.size() + a - n.dims.size();
      if (g_[n.in[0]].dims[inner] == n.dims[a]) {
        GraphNode repeated = n;
        repeated.held = false;
        repeated.in[0] = stored(n.in[0], inner, far);
        return add_.push(repeated);
      }
    }
    return add_.add(Op::arrange, {channels_inside(x, a, far)});
  }

  ir::Graph& g_;
  const schedule::Target& target_;
  ir::Builder add_;
  std::vector<std::optional<FarChannels>> found_;            // by node
  std::map<std::pair<NodeId, std::size_t>, NodeId> turned_;  // by the array and its axis of channels
};

}  // namespace

transform::Renumbering turn_windows(ir::Graph& graph, const schedule::Target& target) {
  return Turner(graph, target).run();
}

}  // namespace kiln::plan
