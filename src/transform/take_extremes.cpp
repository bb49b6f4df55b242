// Terminates: one walk in topological order; a part of a sort becomes two dozen nodes at most.
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
#include <unordered_set>
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
    std::vector<bool> placed(g_.size());
    std::vector<int> readers(g_.size());
    for (const NodeId root : g_.roots) ++readers[root];
    for (const GraphNode& n : g_.nodes)
      for (const NodeId in : n.in) ++readers[in];
    for (NodeId id = 0; id < g_.size(); ++id)
      if (const GraphNode& n = g_[id]; n.op == Op::part && !wants_values(n) && (readers[id] > 0 || n.held))
        placed[n.in[0]] = true;
    return rebuild(g_, [&](NodeId id, GraphNode n) {
      const bool ordered = n.op == Op::part && g_[n.in[0]].op == Op::sort_with_positions;
      if (!ordered) {
        const bool held = n.held;
        const NodeId now = n.op == Op::reduce_max || n.op == Op::reduce_min ? extreme(n) : add_.push(n);
        if (placed[id]) orders_[now].places = true;
        if (readers[id] == 1 && !held) alone_.insert(now);
        return now;
      }
      const auto how = ir::attributes<ir::Sort>(g_[n.in[0]]);
      const NodeId x = g_[n.in[0]].in[0];
      if (!how.descending || g_[x].dims[how.axis] <= 1 || is_bool(g_[x].dtype)) return add_.push(n);
      const std::int64_t kept = n.dims[how.axis];
      if (kept == 2 && costs_.seconds && makes_long_rows(x, how.axis)) return two(n, x, how.axis);
      return kept == 1 ? first(n, x, how.axis) : add_.push(n);
    });
  }

 private:
  struct Order {                                       // of one bundle
    NodeId first = ir::kNoNode, second = ir::kNoNode;  // positions
    NodeId rest = ir::kNoNode;                         // the elements without the first: it is the least
    bool places = false;                               // somebody asks where they were
  };

  /// Whether of an order's first two floats only the values are asked for, and numbers find these.
  bool takes_values(const GraphNode& part, NodeId x) {
    return costs_.by_values && is_float(g_[x].dtype) && wants_values(part) && !orders_[part.in[0]].places;
  }
  /// Whether maps make the elements of rows that an order would have stored.
  bool makes_long_rows(NodeId x, std::size_t axis) const {
    return g_[x].dims[axis] >= kLongRow && ir::is_elementwise(g_[x].op) &&
           (costs_.most_maps == 0 || is_made_of_few(x));
  }

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

  /// Whether a value is f(x), of one reader, where f grows with x and gives a number of each: an extreme of
  /// f(x) is f of that of x.
  bool is_rising(NodeId id) const {
    switch (g_[id].op) {
      case Op::exp:
      case Op::exp2:
      case Op::expm1:
      case Op::sinh:
      case Op::tanh:
      case Op::atan:
      case Op::asinh:
      case Op::erf:
      case Op::sigmoid:
      case Op::softplus: return is_float(g_[g_[id].in[0]].dtype) && alone_.contains(id);
      default: return false;
    }
  }

  NodeId extreme(GraphNode n) {
    const NodeId x = n.in[0];
    if (!is_rising(x)) return add_.push(n);
    add_.loc = n.loc;
    const NodeId of_x = add_.add(n.op, {g_[x].in[0]}, ir::attributes<ir::Reduce>(n));
    add_.redefine(n, g_[x].op, {of_x});
    return add_.push(n);
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

  /// The greatest two of floats, of which nobody asks where they were: the greatest, and the greatest of what
  /// is less, if nothing else equals the first. So an element is compared with numbers alone. All is of a
  /// type in which a number of the elements' has one just below it.
  NodeId two_values(GraphNode n, NodeId x, std::size_t axis) {
    add_.loc = n.loc;
    const bool rising = is_rising(x);
    const Op map = g_[x].op;
    if (rising) x = g_[x].in[0];
    const DType stored = g_[x].dtype, type = is_half(stored) ? DType::Float32 : stored;
    const auto as = [&](NodeId value, DType to) {
      return g_[value].dtype == to ? value : add_.add(Op::cast, {value}, {}, {.dtype = to});
    };
    const ir::Reduce along{std::uint64_t{1} << axis};
    const NodeId infinite = number(type, kernel::const_bits(type, -least_of(type))),
                 least = number(type, kernel::const_bits(type, least_of(type)));
    x = as(x, type);
    const NodeId first = add_.add(Op::reduce_max, {x}, along),
                 below = add_.add(Op::where, {add_.add(Op::isnan, {first}), infinite,
                                              add_.add(Op::nextafter, {first, least})}),
                 less = add_.add(Op::less_equal, {x, below}),  // never of a NaN
        rest = add_.add(Op::where, {less, x, least}), second = add_.add(Op::reduce_max, {rest}, along);
    const NodeId others =
        add_.add(Op::reduce_sum,
                 {add_.add(Op::where, {less, number(DType::Int32, 0), number(DType::Int32, 1)})}, along);
    const NodeId again = add_.add(Op::greater, {others, number(g_[others].dtype, 1)});
    const NodeId both[] = {as(first, stored), as(add_.add(Op::where, {again, first, second}), stored)};
    if (rising)
      add_.redefine(n, map, {add_.add(Op::join, {both[0], both[1]}, ir::Join{axis}, {.dims = n.dims})});
    else
      add_.redefine(n, Op::join, {both[0], both[1]}, ir::Join{axis});
    return add_.push(n);
  }

  NodeId two(GraphNode n, NodeId x, std::size_t axis) {
    Order& order = orders_[n.in[0]];
    if (takes_values(n, x)) return two_values(std::move(n), x, axis);
    add_.loc = n.loc;
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
  std::unordered_set<NodeId> alone_;  // nodes, as they are now, that one node reads
};

}  // namespace

Renumbering take_extremes(ir::Graph& graph, const SecondCosts& costs) { return Taker(graph, costs).run(); }

}  // namespace kiln::transform
