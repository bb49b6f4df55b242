#include "plan/joined_halves.h"

#include "plan/fuse.h"

#include <algorithm>
#include <vector>

namespace kiln::plan {
namespace {

using ir::GraphNode;
using ir::Op;
using ir::OpKind;

/// Maps alone, each of as many points and of some, whose results have memory of their own.
bool are_maps(const Graph& g, const Regions& regions, const Region& r) {
  if (r.kind != Region::Kind::Fused || !r.rows.empty() || !r.axes.empty() || r.outputs.empty()) return false;
  const std::int64_t points = g[r.outputs.front()].numel;
  const bool own =
      std::ranges::none_of(r.outputs, [&](NodeId id) { return regions.placements.contains(id); });
  return own && points > 0 && std::ranges::all_of(r.nodes, [&](NodeId id) {
           const OpKind kind = ir::info(g[id].op).kind;
           const bool map = kind == OpKind::Cast || kind == OpKind::Elementwise || g[id].op == Op::join;
           return map && g[id].numel == points && !is_written_in_place(g[id]);
         });
}

/// How far apart the points of two equal halves are that a region joins; 0: it joins none.
std::int64_t distance_of_joined(const Graph& g, const Regions& regions, const Region& r) {
  const std::int64_t points = g[r.outputs.front()].numel;
  std::vector<NodeId> stack(r.nodes.begin(), r.nodes.end());
  while (!stack.empty()) {
    const NodeId id = stack.back();
    const GraphNode& n = g[id];
    stack.pop_back();
    if (n.op == Op::join && n.numel == points && n.in.size() == 2 &&
        std::ranges::equal(g[n.in[0]].dims, g[n.in[1]].dims)) {
      std::int64_t distance = 1;
      for (std::size_t a = ir::attributes<ir::Join>(n).axis; a < n.dims.size(); ++a)
        distance *= g[n.in[0]].dims[a];
      return distance;
    }
    for (const NodeId in : n.in)
      if (g[in].numel == points && g[in].op != Op::leaf && !regions.stored[in]) stack.push_back(in);
  }
  return 0;
}

}  // namespace

void join_halves(const Graph& g, const schedule::Target& target, Regions& regions,
                 const std::function<bool(const Region&)>& shares) {
  if (!target.gpu) return;
  for (Region& r : regions.regions) {
    if (!are_maps(g, regions, r)) continue;
    r.partner = distance_of_joined(g, regions, r);
    if (r.partner > 0 && !shares(r)) r.partner = 0;
  }
}

}  // namespace kiln::plan
