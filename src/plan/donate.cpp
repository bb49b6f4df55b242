#include "plan/donate.h"

#include "ir/layout.h"
#include "plan/fuse.h"

#include <algorithm>
#include <optional>

namespace kiln::plan {
namespace {

using ir::GraphNode;
using ir::kNoNode;
using ir::Op;

constexpr std::size_t kMostPositions = 2;  // operands that the node of a box has room for

bool is_update(Op op) { return op == Op::pad || op == Op::update_at; }

class Donor {
 public:
  Donor(Graph& graph, std::span<const NodeId> leaves, std::span<const NodeId> wanted)
      : g_(graph), leaves_(leaves), wanted_(wanted), loops_(ir::find_loops(graph)) {}

  Donations run() {
    for (NodeId leaf : leaves_) {
      const NodeId update = update_of(leaf);
      if (update == kNoNode || shows(leaf, update)) continue;
      const auto arg = static_cast<std::uint32_t>(g_[leaf].arg);
      if (g_[update].op == Op::scatter) {
        g_[update].arg = g_[leaf].arg;
      } else {
        std::optional<Box> box = box_of(update, leaf);
        if (!box) continue;
        boxes_.emplace(update, *std::move(box));
      }
      out_.args.push_back(arg);
    }
    if (!boxes_.empty()) rebuild();
    return std::move(out_);
  }

 private:
  struct Box {
    NodeId body = kNoNode;
    Placement at;
  };

  bool is_root(NodeId id) const { return std::find(g_.roots.begin(), g_.roots.end(), id) != g_.roots.end(); }

  /// The one update of a leaf, if its result is stored in any case.
  NodeId update_of(NodeId leaf) const {
    NodeId found = kNoNode;
    for (NodeId id = 0; id < g_.size(); ++id) {
      const GraphNode& n = g_[id];
      const bool updates = (is_update(n.op) && n.in[1] == leaf) || (n.op == Op::scatter && n.in[0] == leaf);
      if (!updates) continue;
      if (found != kNoNode) return kNoNode;
      found = id;
    }
    if (found == kNoNode || !is_root(found) || loops_.owner_of(found) != kNoNode) return kNoNode;
    const GraphNode& n = g_[found];
    if (!std::ranges::equal(n.dims, g_[leaf].dims) || !contiguous(leaf)) return kNoNode;
    const std::int64_t written = n.op == Op::scatter ? g_[n.in[2]].numel : g_[n.in[0]].numel;
    return (n.numel - written) * size_of(n.dtype) < donated_bytes.load(std::memory_order_relaxed) ? kNoNode
                                                                                                  : found;
  }

  bool contiguous(NodeId leaf) const {
    const ir::ArgInfo& a = g_.args[static_cast<std::size_t>(g_[leaf].arg)];
    return ir::is_row_major(a.dims, a.strides);
  }

  /// Whether somebody is handed a view of the old value.
  bool shows(NodeId leaf, NodeId update) const {
    const auto is_view_of_it = [&](NodeId id) { return id != update && resolve_alias(g_, id).base == leaf; };
    return std::any_of(g_.roots.begin(), g_.roots.end(), is_view_of_it) ||
           std::any_of(wanted_.begin(), wanted_.end(), is_view_of_it);
  }

  /// Where the innermost of nested updates goes: one of a slice of the leaf, that takes this slice's place,
  /// is one of the leaf.
  std::optional<Box> box_of(NodeId update, NodeId leaf) const {
    Box box;
    box.at.arg = static_cast<std::uint32_t>(g_[leaf].arg);
    const std::size_t rank = g_[leaf].dims.size();
    box.at.strides = ir::row_major_strides(g_[leaf].dims);
    NodeId id = update, window = leaf;
    for (;;) {
      const GraphNode& n = g_[id];
      if (n.op == Op::update_at) {
        const auto [axis, factor, from_back] = ir::attributes<ir::Position>(n);
        const std::int64_t last = n.dims[axis] - g_[n.in[0]].dims[axis];
        box.at.positions.push_back(
            {n.in[2], last, factor, box.at.strides[axis], from_back ? n.dims[axis] : 0});
      } else {
        const auto body = ir::attributes<ir::Box>(n);
        for (std::size_t a = 0; a < rank; ++a) {
          box.at.offset += body.first(a) * box.at.strides[a];
          box.at.strides[a] *= body.step(a);
        }
      }
      box.body = n.in[0];
      if (n.op != Op::update_at || box.at.positions.size() == kMostPositions) return box;
      const GraphNode& inner = g_[box.body];
      if (!is_update(inner.op) || is_root(box.body)) return box;
      const GraphNode& seen = g_[inner.in[1]];
      if (seen.op != Op::slice_at || seen.in[0] != window || seen.in[1] != n.in[2] ||
          ir::attributes<ir::Position>(seen) != ir::attributes<ir::Position>(n))
        return box;
      window = inner.in[1];
      id = box.body;
    }
  }

  /// Puts the node of each box in front of its update.
  void rebuild() {
    std::vector<GraphNode> nodes;
    out_.now.resize(g_.size());
    for (NodeId id = 0; id < g_.size(); ++id) {
      GraphNode n = g_[id];
      for (NodeId& in : n.in) in = out_.now[in];
      if (const auto box = boxes_.find(id); box != boxes_.end()) {
        // A conversion to the same dtype: a node of the body's points and nothing to compute. It reads the
        // starts, which must be there before it.
        GraphNode w = g_[box->second.body];
        w.op = Op::cast;
        w.held = false;
        ir::set_attributes(w, ir::Cast{});
        w.arg = -1;
        w.loc = n.loc;
        std::vector<NodeId> in{out_.now[box->second.body]};
        Placement at = box->second.at;
        for (Placement::Position& p : at.positions) in.push_back(p.start = out_.now[p.start]);
        w.in = ir::Operands(in);
        const auto written = static_cast<NodeId>(nodes.size());
        nodes.push_back(w);
        out_.placements.emplace(written, std::move(at));
        n.in[0] = written;
        n.arg = static_cast<std::int32_t>(box->second.at.arg);
      }
      out_.now[id] = static_cast<NodeId>(nodes.size());
      nodes.push_back(n);
    }
    g_.nodes = std::move(nodes);
    for (NodeId& root : g_.roots) root = out_.now[root];
    for (const auto& [node, at] : out_.placements) g_.roots.push_back(node);
    std::sort(g_.roots.end() - static_cast<std::ptrdiff_t>(out_.placements.size()), g_.roots.end());
  }

  Graph& g_;
  std::span<const NodeId> leaves_, wanted_;
  ir::Loops loops_;
  std::unordered_map<NodeId, Box> boxes_;  // by update
  Donations out_;
};

}  // namespace

Donations donate(Graph& graph, std::span<const NodeId> leaves, std::span<const NodeId> wanted) {
  return Donor(graph, leaves, wanted).run();
}

}  // namespace kiln::plan
