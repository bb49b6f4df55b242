// Terminates: every walk goes from a node to what it reads, and meets each node once.
#include "plan/recompute.h"

#include <algorithm>
#include <unordered_set>

namespace kiln::plan {
namespace {

using ir::GraphNode;
using ir::Op;
using ir::OpKind;

constexpr float kMostCost = 6;                    // primitives a point
constexpr std::int64_t kLeastElements = 1 << 16;  // below, launches are all that counts
constexpr std::int64_t kMuchSmaller = 8;  // times: a result that costs little to store, and to read again

std::int64_t bytes_of(const GraphNode& n) { return n.numel * size_of(n.dtype); }

/// What a region reads from memory.
class Operands {
 public:
  Operands(const Graph& g, const Regions& regions) : g_(g), regions_(regions) {}

  std::vector<NodeId> of(const Region& r) const {
    std::unordered_set<NodeId> own(r.nodes.begin(), r.nodes.end()), seen;
    std::vector<NodeId> stack, found;
    for (const NodeId n : r.nodes) stack.insert(stack.end(), g_[n].in.begin(), g_[n].in.end());
    while (!stack.empty()) {
      const NodeId at = stack.back();
      stack.pop_back();
      if (own.contains(at) || !seen.insert(at).second) continue;
      if (regions_.stored[at]) {
        found.push_back(at);
        continue;
      }
      stack.insert(stack.end(), g_[at].in.begin(), g_[at].in.end());
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  /// What a node is made of by maps and affine views that take few primitives, down to memory and to results
  /// that are much smaller; false where it is made otherwise. `maps`: itself and the maps.
  bool below(NodeId id, const schedule::Target& target, std::vector<NodeId>& found,
             std::vector<NodeId>& maps) const {
    std::unordered_set<NodeId> seen;
    std::vector<NodeId> stack{id};
    float cost = 0;
    while (!stack.empty()) {
      const NodeId at = stack.back();
      stack.pop_back();
      if (!seen.insert(at).second) continue;
      if (at != id && regions_.stored[at]) {
        found.push_back(at);
        continue;
      }
      const GraphNode& n = g_[at];
      switch (ir::info(n.op).kind) {
        case OpKind::Elementwise:
        case OpKind::Cast:
          cost += target.cost_of(static_cast<int>(n.op));
          maps.push_back(at);
          break;
        case OpKind::Scalar: break;
        case OpKind::View:
          if (n.op != Op::broadcast && n.op != Op::reshape && n.op != Op::permute && n.op != Op::slice)
            return false;
          break;
        case OpKind::Leaf:
        case OpKind::Iota:
        case OpKind::Reduce:
        case OpKind::Scan:
        case OpKind::LoopState:
        case OpKind::LoopNext:
        case OpKind::Loop:
        case OpKind::LoopResult:
        case OpKind::LoopStack:
        case OpKind::Gather:
        case OpKind::Contraction:
        case OpKind::Library:
        case OpKind::Part:
          if (n.numel * kMuchSmaller > g_[id].numel) return false;
          found.push_back(at);
          continue;
      }
      if (cost > kMostCost) return false;
      stack.insert(stack.end(), n.in.begin(), n.in.end());
    }
    return true;
  }

 private:
  const Graph& g_;
  const Regions& regions_;
};

/// Roots, and what a root shows.
std::vector<bool> shown(const Graph& g) {
  std::vector<bool> out(g.size());
  for (NodeId r : g.roots) {
    out[r] = true;
    while (ir::is_view(g[r].op) && !g[r].in.empty()) out[r = g[r].in[0]] = true;
  }
  return out;
}

}  // namespace

std::vector<std::vector<NodeId>> reads_of(const Graph& g, const Regions& regions) {
  const Operands operands(g, regions);
  std::vector<std::vector<NodeId>> out;
  for (const Region& r : regions.regions) out.push_back(operands.of(r));
  return out;
}

std::vector<bool> worth_recomputing(const Graph& g, const Regions& regions, const schedule::Target& target) {
  const Operands operands(g, regions);
  const std::vector<std::vector<NodeId>> reads = reads_of(g, regions);
  std::vector<std::vector<std::uint32_t>> readers(g.size());
  for (std::uint32_t r = 0; r < regions.regions.size(); ++r)
    for (const NodeId n : reads[r]) readers[n].push_back(r);
  const std::vector<bool> kept = shown(g);
  std::vector<bool> again;
  for (const Region& r : regions.regions) {
    if (r.kind != Region::Kind::Fused) continue;
    for (const NodeId x : r.outputs) {
      const OpKind kind = ir::info(g[x].op).kind;
      if (kept[x] || g[x].numel < kLeastElements || readers[x].empty()) continue;
      if (kind != OpKind::Elementwise && kind != OpKind::Cast) continue;
      std::vector<NodeId> made_of, maps;
      if (!operands.below(x, target, made_of, maps) || made_of.empty()) continue;
      std::int64_t saved = bytes_of(g[x]);
      bool inside = true;
      for (const NodeId o : made_of)
        if (!regions.stored[o]) saved -= bytes_of(g[o]);
      for (const std::uint32_t s : readers[x]) {
        inside &= regions.regions[s].kind == Region::Kind::Fused;
        saved += bytes_of(g[x]);
        for (const NodeId o : made_of)
          if (!std::binary_search(reads[s].begin(), reads[s].end(), o)) saved -= bytes_of(g[o]);
      }
      if (!inside || saved <= 0) continue;
      again.resize(g.size());
      for (const NodeId m : maps) again[m] = true;
    }
  }
  return again;
}

double traffic_of(const Graph& g, const Regions& regions, const schedule::Target& target) {
  const Operands operands(g, regions);
  double ns = 0;
  for (const Region& r : regions.regions) {
    std::int64_t bytes = 0;
    for (const NodeId n : operands.of(r)) bytes += bytes_of(g[n]);
    for (const NodeId n : r.outputs) bytes += bytes_of(g[n]);
    ns += target.launch_ns + target.traffic_ns(static_cast<double>(bytes));
  }
  return ns;
}

}  // namespace kiln::plan
