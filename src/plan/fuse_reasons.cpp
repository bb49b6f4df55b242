// Fuser: what to say of two groups whose points do not line up.
#include "plan/fuser.h"

#include "support/check.h"

#include <algorithm>

namespace kiln::plan {

/// The extents of a group's whole domain.
ir::Dims Fuser::domain_of(const Group& x) const {
  for (NodeId id : x.nodes)
    if (ir::is_reduce(g_[id].op) && g_[g_[id].in[0]].numel == x.points) return g_[g_[id].in[0]].dims;
  for (NodeId id : x.nodes)
    if (g_[id].numel == x.points) return elements_of(g_[id]);
  return elements_of(g_[x.root_node]);
}

/// "sum over 0, 2 of (3, 4, 5)": what a group's rows go along.
std::string Fuser::rows_of(const Group& x) const {
  for (NodeId id : x.nodes) {
    const GraphNode& n = g_[id];
    if (ir::is_scan(n.op))
      return cat(ir::info(n.op).name, " along ", ir::attributes<ir::Scan>(n).axis, " of ", to_string(n.dims));
    if (!ir::is_reduce(n.op)) continue;
    const ir::Dims in = g_[n.in[0]].dims;
    std::string axes;
    for (std::size_t a = 0; a < in.size(); ++a)
      if (ir::attributes<ir::Reduce>(n).over(a)) axes += cat(axes.empty() ? "" : ", ", a);
    return cat(ir::info(n.op).name, " over ", axes, " of ", to_string(in));
  }
  return "a map";
}

/// The view, or the gather, by which a consumer reads a producer at other points; the last one that moves
/// elements.
std::string Fuser::read_through(NodeId producer, NodeId consumer) const {
  const auto describe = [&](NodeId id) {
    const GraphNode& n = g_[id];
    return cat(ir::info(n.op).name, " ", to_string(n.dims), " of ", to_string(g_[n.in[0]].dims));
  };
  std::vector<std::pair<NodeId, std::string>> stack{{consumer, {}}};
  std::vector<NodeId> seen;
  while (!stack.empty()) {
    auto [at, through] = std::move(stack.back());
    stack.pop_back();
    if (std::find(seen.begin(), seen.end(), at) != seen.end()) continue;
    seen.push_back(at);
    const GraphNode& n = g_[at];
    const bool moves = ir::is_view(n.op) ? n.op != Op::reshape : n.op == Op::gather;
    if (moves && (through.empty() || n.op != Op::broadcast)) through = describe(at);
    for (const NodeId in : n.in) {
      if (in == producer) return through.empty() ? std::string(ir::info(n.op).name) : through;
      if (transparent_[in]) stack.push_back({in, through});
    }
  }
  return "a loop";
}

bool Fuser::go_along_same_axes(const Group& a, const Group& b) {
  Fit f{Unifier(a.space, b.space), {}, false};
  return f.atoms.same(a.levels.place[0], b.levels.place[0]) && f.atoms.finish() && join_levels(a, b, f) &&
         f.levels.n == 2;
}

Why Fuser::why_not_in_line(const Edge& e) {
  const Group &a = group(e.producer), &b = group(e.consumer);
  if (e.relation == Relation::Other)
    return because(FusionReason::OtherPoints, read_through(e.producer, e.consumer));
  if (!a.is_map() && !b.is_map() && !go_along_same_axes(a, b))
    return because(FusionReason::OtherAxes, rows_of(a), rows_of(b));
  if (e.relation == Relation::Spread)
    return because(!a.is_map() || !b.is_map() ? FusionReason::SpreadAcross : FusionReason::SpreadAlone,
                   to_string(g_[e.producer].dims), to_string(elements_of(g_[e.consumer])));
  return because(FusionReason::OtherDomain, to_string(domain_of(a)), to_string(domain_of(b)));
}

}  // namespace kiln::plan
