// Terminates: one walk in topological order; a reduction gets a few more nodes for each operand.
//
// An operand is stored by the op `arrange`, whose result is memory of its own in row-major order: the
// operand's axes are exchanged before and exchanged back behind it, and the reduction is as it was.
#include "transform/arrange_operands.h"

#include "ir/builder.h"
#include "transform/nouns.h"
#include "transform/rebuild.h"

#include <algorithm>
#include <array>
#include <vector>

namespace kiln::transform {
namespace {

constexpr std::int64_t kLeastReads = 8;  // of each element of an operand
// Elements from which fewer bytes of each are read sooner. Fewer elements are stored as they are computed
// with: a kernel that converts them would store them in their old order.
constexpr std::int64_t kLeastNarrow = 1 << 16;
constexpr std::int64_t kLeastPoints = 1 << 22;  // below, another kernel takes longer

/// The axes of a reduction over pairs, from the end of the extents.
struct Pair {
  std::size_t reduced = 0, across = 0;
  bool wanted = false;
};

class Arranger {
 public:
  Arranger(Graph& graph, std::int64_t least_across, const NestCosts& nests)
      : g_(graph), least_across_(least_across), nested_(graph, of_pairs(nests)), add_(graph) {}

  Renumbering run() {
    arranged_.assign(g_.size(), {});
    for (NodeId id = 0; id < g_.size(); ++id)
      if (ir::is_reduce(g_[id].op) && !nested_.contains(id) && !nested_.is_stored(id)) find_below(g_[id]);
    return rebuild(g_, [&](NodeId id, GraphNode n) {
      for (std::size_t k = 0; k < std::min(n.in.size(), arranged_[id].size()); ++k)
        if (arranged_[id][k].wanted) n.in[k] = arrange(n.in[k], n.loc, arranged_[id][k]);
      return add_.push(n);
    });
  }

 private:
  /// Costs by which NestedPairs finds every nest that will have a main loop for pairs: also those with fewer
  /// results than a product's sum is worth.
  static NestCosts of_pairs(NestCosts nests) {
    nests.results = nests.pairs;
    return nests;
  }

  /// The last axis longer than 1 alone is reduced, and enough results lie along the one before it.
  bool is_of_pairs(const GraphNode& n, ir::Dims dims, Pair& pair) const {
    std::size_t a = dims.size();
    while (a > 0 && dims[a - 1] == 1) --a;
    if (a < 2) return false;
    const auto over = ir::attributes<ir::Reduce>(n);
    pair.reduced = dims.size() - a;
    std::size_t across = a - 1;
    while (across > 0 && dims[across - 1] == 1) --across;
    if (across == 0 || dims[across - 1] < least_across_) return false;
    pair.across = dims.size() - across;
    for (std::size_t k = 0; k < dims.size(); ++k)
      if (dims[k] != 1 && over.over(k) != (k == a - 1)) return false;
    pair.wanted = true;
    return true;
  }

  struct Use {
    NodeId by;
    std::size_t k;
  };

  /// The operands that are spread over the points of `id`, or false where one has a value for every point.
  bool find_operands(NodeId id, std::int64_t points, std::vector<Use>& spread) {
    std::vector<NodeId> stack{id};
    std::vector<NodeId> seen;
    while (!stack.empty()) {
      const NodeId at = stack.back();
      stack.pop_back();
      if (std::find(seen.begin(), seen.end(), at) != seen.end()) continue;
      seen.push_back(at);
      const GraphNode& n = g_[at];
      if (!ir::is_elementwise(n.op) && n.op != Op::broadcast) return false;
      for (std::size_t k = 0; k < n.in.size(); ++k) {
        const std::int64_t elements = g_[n.in[k]].numel;
        if (elements == points)
          stack.push_back(n.in[k]);
        else if (elements * kLeastReads <= points)
          spread.push_back({at, k});
        else
          return false;
      }
    }
    return !spread.empty();
  }

  /// The extent of an operand along an axis counted from the end.
  static std::int64_t extent(ir::Dims dims, std::size_t from_end) {
    return from_end < dims.size() ? dims[dims.size() - 1 - from_end] : 1;
  }

  void find_below(const GraphNode& n) {
    const GraphNode& in = g_[n.in[0]];
    Pair pair;
    std::vector<Use> spread;
    if (in.numel < kLeastPoints || !is_of_pairs(n, in.dims, pair)) return;
    if (!find_operands(n.in[0], in.numel, spread)) return;
    for (const Use& use : spread) {
      const ir::Dims dims = g_[g_[use.by].in[use.k]].dims;
      if (extent(dims, pair.across) != 1 && extent(dims, pair.reduced) != 1) arranged_[use.by][use.k] = pair;
    }
  }

  /// An operand from memory that has the axis across last.
  NodeId arrange(NodeId x, SourceLocation loc, const Pair& pair) {
    add_.loc = loc;
    const DType dtype = g_[x].dtype;
    while (g_[x].numel >= kLeastNarrow && g_[x].op == Op::cast &&
           size_of(g_[g_[x].in[0]].dtype) < size_of(g_[x].dtype))
      x = g_[x].in[0];
    const std::size_t rank = g_[x].dims.size(), a = rank - 1 - pair.across, k = rank - 1 - pair.reduced;
    ir::Permute exchanged;
    for (std::size_t axis = 0; axis < rank; ++axis)
      exchanged.show(axis, axis == a ? k : axis == k ? a : axis);
    const NodeId stored = add_.add(Op::arrange, {add_.add(Op::permute, {x}, exchanged)});
    const NodeId back = add_.add(Op::permute, {stored}, exchanged);
    return g_[x].dtype == dtype ? back : add_.add(Op::cast, {back}, {}, {.dtype = dtype});
  }

  Graph& g_;
  const std::int64_t least_across_;
  const NestedPairs nested_;
  ir::Builder add_;
  std::vector<std::array<Pair, 3>> arranged_;  // by node and operand
};

}  // namespace

Renumbering arrange_operands(Graph& graph, std::int64_t least_across, const NestCosts& nests) {
  return Arranger(graph, least_across, nests).run();
}

}  // namespace kiln::transform
