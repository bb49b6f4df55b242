// Terminates: one walk in topological order; a part of a sort becomes a dozen nodes at most.
#include "transform/take_extremes.h"

#include "ir/builder.h"
#include "kernel/expr.h"
#include "transform/nouns.h"
#include "transform/rebuild.h"

#include <kiln/shape.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <vector>

namespace kiln::transform {
namespace {

constexpr std::int64_t kLongRow = 32;  // elements; shorter rows are ordered in less time

double least_of(DType type) {
  if (is_float(type)) return -std::numeric_limits<double>::infinity();
  return is_signed_int(type) ? -std::ldexp(1.0, static_cast<int>(8 * size_of(type)) - 1) : 0;
}

class Taker {
 public:
  Taker(Graph& graph, const SecondCosts& costs) : g_(graph), costs_(costs), add_(graph) {}

  Renumbering run() {
    return rebuild(g_, [&](NodeId, GraphNode n) {
      if (n.op != Op::part || g_[n.in[0]].op != Op::sort_with_positions) return add_.push(n);
      const auto how = ir::attributes<ir::Sort>(g_[n.in[0]]);
      const NodeId x = g_[n.in[0]].in[0];
      if (!how.descending || g_[x].dims[how.axis] <= 1 || is_bool(g_[x].dtype)) return add_.push(n);
      const std::int64_t kept = n.dims[how.axis];
      if (kept == 2 && costs_.seconds && g_[x].dims[how.axis] >= kLongRow && ir::is_elementwise(g_[x].op) &&
          (costs_.most_maps == 0 || is_made_of_few(x)))
        return two(n, x, how.axis);
      return kept == 1 ? first(n, x, how.axis) : add_.push(n);
    });
  }

 private:
  struct Order {                                       // of one bundle
    NodeId first = ir::kNoNode, second = ir::kNoNode;  // positions
    NodeId rest = ir::kNoNode;                         // the elements without the first: it is the least
  };

  /// Whether few maps make a value, of nothing but much smaller ones.
  bool is_made_of_few(NodeId x) const {
    constexpr std::int64_t kMuchSmaller = 8;
    std::vector<NodeId> maps{x};
    for (std::size_t at = 0; at < maps.size(); ++at) {
      if (maps.size() > static_cast<std::size_t>(costs_.most_maps)) return false;
      for (const NodeId in : g_[maps[at]].in) {
        if (g_[in].numel * kMuchSmaller <= g_[x].numel || std::ranges::count(maps, in) > 0) continue;
        if (!ir::is_elementwise(g_[in].op)) return false;
        maps.push_back(in);
      }
    }
    return true;
  }

  bool wants_values(const GraphNode& n) const { return ir::attributes<ir::Part>(n).index == 0; }

  NodeId first_position(Order& order, NodeId x, std::size_t axis) {
    if (order.first == ir::kNoNode)
      order.first = add_.add(Op::reduce_argmax, {x}, ir::Reduce{std::uint64_t{1} << axis});
    return order.first;
  }

  NodeId first(GraphNode n, NodeId x, std::size_t axis) {
    const ir::Reduce along{std::uint64_t{1} << axis};
    if (wants_values(n) && !is_float(g_[x].dtype)) {
      add_.redefine(n, Op::reduce_max, {x}, along);
      return add_.push(n);
    }
    add_.loc = n.loc;
    const NodeId at = first_position(orders_[n.in[0]], x, axis);
    if (!wants_values(n)) {
      g_[at].held |= n.held;
      return at;
    }
    add_.redefine(n, Op::gather, {x, at}, ir::Gather{axis});
    return add_.push(n);
  }

  NodeId number(DType dtype, std::uint64_t bits) {
    return add_.add(Op::constant, {}, ir::Constant{bits}, {.dtype = dtype, .dims = Shape{}});
  }

  NodeId two(GraphNode n, NodeId x, std::size_t axis) {
    add_.loc = n.loc;
    Order& order = orders_[n.in[0]];
    const NodeId at = first_position(order, x, axis);
    const DType type = g_[x].dtype;
    if (order.second == ir::kNoNode) {
      Shape places;
      for (std::size_t a = 0; a < g_[x].dims.size(); ++a) places.push_back(a == axis ? g_[x].dims[a] : 1);
      const NodeId place = add_.add(Op::iota, {}, ir::Iota{axis}, {.dtype = DType::Int64, .dims = places});
      const NodeId least = number(type, kernel::const_bits(type, least_of(type)));
      order.rest = add_.add(Op::where, {add_.add(Op::equal, {place, at}), least, x});
      order.second = add_.add(Op::reduce_argmax, {order.rest}, ir::Reduce{std::uint64_t{1} << axis});
    }
    NodeId one = at, other = order.second;
    if (wants_values(n)) {
      const ir::Stated as_positions{.dims = g_[at].dims};
      one = add_.add(Op::gather, {x, at}, ir::Gather{axis}, as_positions);
      other = add_.add(Op::gather, {order.rest, order.second}, ir::Gather{axis}, as_positions);
    } else {
      // The first itself is found again where all others are the least there is, behind it.
      other = add_.add(Op::where, {add_.add(Op::equal, {other, at}), number(g_[at].dtype, 1), other});
    }
    add_.redefine(n, Op::join, {one, other}, ir::Join{axis});
    return add_.push(n);
  }

  Graph& g_;
  const SecondCosts costs_;
  ir::Builder add_;
  std::unordered_map<NodeId, Order> orders_;
};

}  // namespace

Renumbering take_extremes(ir::Graph& graph, const SecondCosts& costs) { return Taker(graph, costs).run(); }

}  // namespace kiln::transform
