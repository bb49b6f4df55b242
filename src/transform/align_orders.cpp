// Terminates: one walk in topological order; each use of a permutation gets at most four nodes in its place.
//
// An operand is stored by the op `arrange`, whose result is memory of its own in row-major order: a
// permutation before it brings the axes into the order wanted, and one behind it brings them back.
#include "transform/align_orders.h"

#include "ir/builder.h"
#include "transform/memory_strides.h"
#include "transform/nouns.h"
#include "transform/rebuild.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <vector>

namespace kiln::transform {
namespace {

constexpr std::int64_t kLeastPoints = 1 << 16;  // below, another kernel takes longer
constexpr std::size_t kMostSteps = 64;          // maps before one reduction that are looked at
constexpr std::int64_t kLeastSpread = 1 << 20;  // points of a map that another kernel pays for
constexpr std::int64_t kLeastTimes = 64;        // that it reads each element of a small operand
constexpr std::int64_t kLeastLanes = 16;        // elements along the axis that is on lanes

/// Axes of a result from the outermost in memory to the innermost, those of one element left out.
using Order = std::vector<std::size_t>;

class Aligner {
 public:
  explicit Aligner(Graph& graph) : g_(graph), add_(graph) {}

  Renumbering run() {
    wanted_.assign(g_.size(), {});
    for (NodeId id = 0; id < g_.size(); ++id) {
      const GraphNode& n = g_[id];
      if (ir::is_reduce(n.op) && g_[n.in[0]].numel >= kLeastPoints) align_below(n.in[0]);
      if (ir::is_elementwise(n.op) && n.in.size() > 1 && n.numel >= kLeastSpread) align_spread(id);
    }
    return rebuild(g_, [&](NodeId id, GraphNode n) {
      for (std::size_t k = 0; k < std::min(n.in.size(), wanted_[id].size()); ++k)
        if (wanted_[id][k]) n.in[k] = arrange(n.in[k], n.loc, *wanted_[id][k]);
      return add_.push(n);
    });
  }

 private:
  struct Use {
    NodeId by;
    std::size_t k;
    Order order;
    std::int64_t bytes;
  };

  /// The order in which a value lies in memory, or would.
  Order order_of(const GraphNode& n) const {
    Order order;
    const bool permuted = n.op == Op::permute;
    std::vector<std::size_t> axes(n.dims.size());
    std::iota(axes.begin(), axes.end(), 0);
    if (permuted) {
      const auto from = ir::attributes<ir::Permute>(n);
      std::sort(axes.begin(), axes.end(), [&](std::size_t a, std::size_t b) { return from[a] < from[b]; });
    }
    for (const std::size_t a : axes)
      if (n.dims[a] != 1) order.push_back(a);
    return order;
  }

  /// The operands from memory that have a value for every point of `id`.
  std::vector<Use> full_operands(NodeId id) const {
    const std::int64_t points = g_[id].numel;
    std::vector<NodeId> stack{id}, seen;
    std::vector<Use> uses;
    while (!stack.empty() && seen.size() < kMostSteps) {
      const NodeId at = stack.back();
      stack.pop_back();
      if (std::find(seen.begin(), seen.end(), at) != seen.end()) continue;
      seen.push_back(at);
      const GraphNode& n = g_[at];
      for (std::size_t k = 0; k < n.in.size(); ++k) {
        const GraphNode& in = g_[n.in[k]];
        if (in.numel != points || in.dims.size() != g_[id].dims.size()) continue;
        if (ir::is_elementwise(in.op))
          stack.push_back(n.in[k]);
        else
          uses.push_back({at, k, order_of(in), in.numel * size_of(in.dtype)});
      }
    }
    return uses;
  }

  void align_below(NodeId id) {
    if (!ir::is_elementwise(g_[id].op)) return;
    const std::vector<Use> uses = full_operands(id);
    std::vector<std::pair<std::size_t, std::int64_t>> by_last;  // bytes whose innermost axis it is
    for (const Use& u : uses) {
      if (u.order.empty()) return;
      const auto at = std::find_if(by_last.begin(), by_last.end(),
                                   [&](const auto& l) { return l.first == u.order.back(); });
      if (at == by_last.end())
        by_last.emplace_back(u.order.back(), u.bytes);
      else
        at->second += u.bytes;
    }
    if (by_last.size() < 2) return;
    // Of equal ones the last axis: what is not permuted stays where it is.
    const auto most = *std::max_element(by_last.begin(), by_last.end(), [](const auto& a, const auto& b) {
      return std::pair(a.second, a.first) < std::pair(b.second, b.first);
    });
    const auto model =
        std::find_if(uses.begin(), uses.end(), [&](const Use& u) { return u.order.back() == most.first; });
    for (const Use& u : uses)
      if (u.order.back() != most.first && u.k < wanted_[u.by].size()) wanted_[u.by][u.k] = model->order;
  }

  /// The axis along which memory of a map's operands is adjacent, if that of all with as many elements is.
  std::optional<std::size_t> lane_axis(const GraphNode& map) const {
    std::optional<std::size_t> lanes;
    for (const NodeId in : map.in) {
      if (g_[in].numel != map.numel || g_[in].dims.size() != map.dims.size()) continue;
      const std::vector<std::int64_t> strides = memory_strides(g_, in);
      for (std::size_t a = 0; a < strides.size(); ++a) {
        if (map.dims[a] < kLeastLanes || strides[a] != 1) continue;
        if (lanes && *lanes != a) return std::nullopt;
        lanes = a;
      }
    }
    return lanes;
  }

  void align_spread(NodeId id) {
    const GraphNode& map = g_[id];
    const auto small = [&](NodeId in) {
      return g_[in].numel >= kLeastLanes && g_[in].numel * kLeastTimes <= map.numel;
    };
    if (std::ranges::none_of(map.in, small)) return;
    const std::optional<std::size_t> lanes = lane_axis(map);
    if (!lanes) return;
    for (std::size_t k = 0; k < std::min(map.in.size(), wanted_[id].size()); ++k) {
      const ir::Dims dims = g_[map.in[k]].dims;
      const std::size_t missing = map.dims.size() - dims.size();
      if (!small(map.in[k]) || *lanes < missing || dims[*lanes - missing] == 1) continue;
      const std::vector<std::int64_t> strides = memory_strides(g_, map.in[k]);
      const std::size_t across = *lanes - missing;
      if (std::abs(strides[across]) <= 1) continue;
      Order order;
      for (std::size_t a = 0; a < dims.size(); ++a)
        if (a != across && dims[a] != 1) order.push_back(a);
      order.push_back(across);
      wanted_[id][k] = order;
    }
  }

  /// An operand from memory that has its axes in this order.
  NodeId arrange(NodeId x, SourceLocation loc, const Order& order) {
    add_.loc = loc;
    const std::size_t rank = g_[x].dims.size();
    Order whole;  // with the axes of one element in front
    for (std::size_t a = 0; a < rank; ++a)
      if (std::find(order.begin(), order.end(), a) == order.end()) whole.push_back(a);
    whole.insert(whole.end(), order.begin(), order.end());
    ir::Permute there, back;
    for (std::size_t a = 0; a < rank; ++a) there.show(a, whole[a]), back.show(whole[a], a);
    const NodeId stored = add_.add(Op::arrange, {add_.add(Op::permute, {x}, there)});
    return add_.add(Op::permute, {stored}, back);
  }

  Graph& g_;
  ir::Builder add_;
  std::vector<std::array<std::optional<Order>, 3>> wanted_;  // by node and operand
};

}  // namespace

Renumbering align_orders(Graph& graph) { return Aligner(graph).run(); }

}  // namespace kiln::transform
