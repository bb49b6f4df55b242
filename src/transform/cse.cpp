// Terminates: one walk; each node either enters the table or is replaced by an earlier node of the table.
#include "transform/cse.h"

#include <algorithm>
#include <bit>

namespace kiln::transform {
namespace {

using ir::Dims;
using ir::GraphNode;
using ir::kNoNode;
using ir::NodeId;
using ir::Op;

/// Whether x op y and y op x have the same bits.
bool commutes(const GraphNode& n) {
  return ir::has(n.op, ir::COMMUTES) || (ir::has(n.op, ir::COMMUTES_INT) && !is_float(n.dtype));
}

bool equal_words(Dims a, Dims b) {
  return a.size() == b.size() && (a.data() == b.data() || std::equal(a.begin(), a.end(), b.begin()));
}

class Merger {
 public:
  explicit Merger(ir::Graph& graph)
      : g_(graph),
        now_(graph),
        mask_(std::bit_ceil(std::size_t{2} * graph.size() + 1) - 1),
        table_(mask_ + 1, kNoNode) {}

  Renumbering run() {
    for (NodeId id = 0; id < g_.size(); ++id) {
      GraphNode& n = g_[id];
      now_.forward_inputs(n);
      if (n.op == Op::loop_state) continue;  // two states may begin alike
      const bool swappable = commutes(n);
      std::size_t slot = hash(n, swappable) & mask_;
      while (table_[slot] != kNoNode && !equal(g_[table_[slot]], n, swappable)) slot = (slot + 1) & mask_;
      if (table_[slot] == kNoNode)
        table_[slot] = id;
      else
        now_.replace(id, table_[slot]);
    }
    return now_.finish();
  }

 private:
  static std::uint64_t mix(std::uint64_t h, std::uint64_t word) {
    return (std::rotl(h, 23) ^ word) * 0x9e3779b97f4a7c15u;
  }

  static std::size_t hash(const GraphNode& n, bool swappable) {
    std::uint64_t h = mix(static_cast<std::uint64_t>(n.op) | static_cast<std::uint64_t>(n.dtype) << 16 |
                              static_cast<std::uint64_t>(n.arg) << 32,
                          static_cast<std::uint64_t>(n.numel));  // which stands for the extents
    if (swappable)
      h = mix(h, std::min(n.in[0], n.in[1]) | std::uint64_t{std::max(n.in[0], n.in[1])} << 32);
    else
      for (const NodeId in : n.in) h = mix(h, in);
    if (n.attr64 != 0) h = mix(h, n.attr64);
    for (std::int64_t word : n.attrs) h = mix(h, static_cast<std::uint64_t>(word));
    return h ^ (h >> 32);
  }

  static bool equal(const GraphNode& x, const GraphNode& y, bool swappable) {
    if (x.op != y.op || x.dtype != y.dtype || x.arg != y.arg || x.attr64 != y.attr64) return false;
    const bool swapped = swappable && x.in[0] == y.in[1] && x.in[1] == y.in[0];
    return (swapped || x.in == y.in) && equal_words(x.dims, y.dims) && equal_words(x.attrs, y.attrs);
  }

  ir::Graph& g_;
  Replacement now_;
  std::size_t mask_;
  std::vector<NodeId> table_;  // open addressing, at most half full
};

}  // namespace

Renumbering cse(ir::Graph& graph) { return Merger(graph).run(); }

}  // namespace kiln::transform
