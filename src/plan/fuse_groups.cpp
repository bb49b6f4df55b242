// Fuser: regions as they grow, and whether two may be one.
#include "plan/fuser.h"

#include "support/check.h"

#include <algorithm>
#include <numeric>

namespace kiln::plan {

// Caps of a kernel: what it has more of takes the compiler more than its share of time.
constexpr std::size_t kMaxEdges = 48;  // distinct inputs
constexpr int kMaxReductions = 24;     // lowering counts phases in a word of 32 bits
constexpr int kMaxStored = 64;
constexpr int kMaxPieces = 96;  // of all arrays that are joined by pads

void Fuser::make_groups() {
  group_of_.assign(g_.size(), -1);
  row_.assign(g_.size(), false);
  for (NodeId id = 0; id < g_.size(); ++id) {
    if (transparent_[id]) continue;
    const GraphNode& x = g_[id];
    if (attention_of_[id] >= 0 && !ends_attention(id)) continue;  // its region stands where it ends
    if (of_loop(x) && join_results(id)) continue;
    Group group;
    group.root_node = id;
    group.nodes = {id};
    group.cost = widens(x) ? 0.0f : std::max(1.0f, t_.cost_of(static_cast<int>(x.op)));
    group.library = ir::is_library(x.op);
    group.attention = attention_of_[id];
    group.reductions = ir::is_reduce(x.op) || ir::is_scan(x.op);
    group.stored = is_root_[id];
    for (int k = 0; k < x.n_in; ++k)
      if (pieces_[x.in[k]] > 1) group.pieces += pieces_[x.in[k]];
    group.points = group.rows = x.numel;
    if (ir::is_reduce(x.op)) {
      const ir::Dims in = g_[x.in[0]].dims;
      Signature s;
      for (std::size_t a = 0; a < in.size(); ++a) s.add(ir::attributes<ir::Reduce>(x).over(a), in[a]);
      group.columns = !s.last_reduced();
      group.signature = s.value();
      group.points = g_[x.in[0]].numel;
      group.reduces = true;
      group.forwards = ir::has(x.op, ir::POSITION);  // the first of equals
      row_[id] = true;
    }
    if (of_loop(x)) {
      const ir::LoopParts& l = loops_.of_result(g_, id);
      group.points = group.rows = Shape(elements_of(x)).numel();
      group.loops = true;
      group.library = !inside_a_kernel(l);
      for (NodeId inside : l.body) group.cost += t_.cost_of(static_cast<int>(g_[inside].op));
    }
    if (ir::is_scan(x.op)) {
      Signature s;
      const auto [axis, exclusive, reverse] = ir::attributes<ir::Scan>(x);
      for (std::size_t a = 0; a < x.dims.size(); ++a) s.add(a == axis, x.dims[a]);
      group.columns = !s.last_reduced();
      group.signature = s.value();
      group.rows = x.numel / std::max<std::int64_t>(x.dims[axis], 1);
      group.scans = true;
      (reverse ? group.backwards : group.forwards) = true;
    }
    group_of_[id] = static_cast<int>(groups_.size());
    if (group.attention >= 0) {
      group.nodes.clear();
      for (NodeId n : attentions_[static_cast<std::size_t>(group.attention)]->nodes) {
        if (transparent_[n]) continue;
        group.nodes.push_back(n);
        group_of_[n] = group_of_[id];
      }
    }
    groups_.push_back(std::move(group));
    order_.push_back();
  }
  for (std::uint32_t e = 0; e < edges_.size(); ++e) {
    groups_[static_cast<std::size_t>(group_of_[edges_[e].consumer])].in_edges.push_back(e);
    if (group_of_[edges_[e].producer] >= 0)
      groups_[static_cast<std::size_t>(group_of_[edges_[e].producer])].out_edges.push_back(e);
  }
}

/// Puts a result of a loop beside an earlier one, if both come from one run of the loop.
bool Fuser::join_results(NodeId id) {
  for (Group& group : groups_) {
    const NodeId other = group.root_node;
    if (!group.loops || g_[other].in[0] != g_[id].in[0]) continue;
    const ir::Dims a = elements_of(g_[other]), b = elements_of(g_[id]);
    const bool alike = std::equal(a.begin(), a.end(), b.begin(), b.end());
    if (!group.library && !alike) continue;
    group.nodes.push_back(id);
    group_of_[id] = static_cast<int>(&group - groups_.data());
    return true;
  }
  return false;
}

/// Whether every edge between a and b lines up under one assignment of full and row nodes.
Fuser::Fit Fuser::fit(const Group& a, const Group& b) {
  for (const auto& [pr, cr] : {std::pair{false, false}, std::pair{false, true}, std::pair{true, false}}) {
    if (cr && (b.signature || !a.signature || b.points != a.rows)) continue;
    if (pr && (a.signature || !b.signature || a.points != b.rows)) continue;
    if (!pr && !cr) {
      if (a.signature && b.signature && a.signature != b.signature) continue;
      if (a.points != b.points) continue;
    }
    const std::uint64_t signature = a.signature ? a.signature : b.signature;
    bool ok = true, dependent = false;
    // A value may have thousands of readers: of the two lists that have the edges between them, the shorter.
    const bool by_readers = a.out_edges.size() < b.in_edges.size();
    for (std::uint32_t id : by_readers ? a.out_edges : b.in_edges) {
      const Edge& e = edges_[id];
      if (by_readers ? &group(e.consumer) != &b : group_of_[e.producer] != group_of_[a.root_node]) continue;
      const bool from_row = pr || row_[e.producer];
      const bool to_row = cr || (row_[e.consumer] && !ir::is_reduce(g_[e.consumer].op));
      if (from_row == to_row)
        ok &= e.relation == Relation::Same;
      else if (from_row)
        ok &= (e.relation == Relation::Spread && e.spread == signature), dependent = true;
      else
        ok = false;
      if (!ok) break;
    }
    if (ok) return {true, pr, cr, dependent};
  }
  return {};
}

bool Fuser::try_edge(std::uint32_t id) {
  const Edge& e = edges_[id];
  if (group_of_[e.producer] < 0) return false;
  const int a = group_of_[e.producer], b = group_of_[e.consumer];
  if (a == b) return false;
  return try_merge(a, b, id);
}

bool Fuser::refuse(std::uint32_t edge, std::string reason) {
  if (reasons_.size() <= edge) reasons_.resize(edges_.size());
  reasons_[edge] = std::move(reason);
  return false;
}

bool Fuser::try_merge(int ia, int ib, std::uint32_t edge) {
  Group &a = groups_[static_cast<std::size_t>(ia)], &b = groups_[static_cast<std::size_t>(ib)];
  if (a.library || b.library)
    return refuse(edge, a.attention >= 0 || b.attention >= 0 ? "an attention is one kernel by itself"
                        : a.loops || b.loops ? "a loop over whole tensors runs its own kernels"
                        : is_contraction(a) || is_contraction(b) ? "contractions run as library calls"
                                                                 : "sorts and searches run as library calls");
  if (a.points == 0 || b.points == 0) return refuse(edge, "no elements");
  if (std::string why = too_much(a, b); !why.empty()) return refuse(edge, std::move(why));
  if (a.in_edges.size() + b.in_edges.size() > kMaxEdges * 4 && inputs_of(a, b) > kMaxEdges)
    return refuse(edge, cat("more than ", kMaxEdges, " inputs"));
  const Fit f = fit(a, b);
  if (!f.ok) return refuse(edge, std::string(kNotInLine));
  if (runs_against(a, b)) return refuse(edge, "one runs from the start of the axis, the other from its end");
  if (runs_loops_again(a, b, f.dependent))
    return refuse(edge, "a loop would run once for each phase of the other's rows");
  if (std::string why = needs_rows(a, b, f.dependent); !why.empty()) return refuse(edge, std::move(why));
  if (path_around(ia, ib)) return refuse(edge, "another kernel lies between them");
  merge(ia, ib, f);
  return true;
}

/// Why one kernel of both would take the compiler too long, or nothing.
std::string Fuser::too_much(const Group& a, const Group& b) const {
  if (a.cost + b.cost > static_cast<float>(t_.max_prims))
    return cat("together ", a.cost + b.cost, " primitives, above the cap of ", t_.max_prims);
  if (a.reductions + b.reductions > kMaxReductions)
    return cat("more than ", kMaxReductions, " reductions and scans");
  if (a.stored + b.stored > kMaxStored) return cat("more than ", kMaxStored, " results that are held");
  if (a.pieces && b.pieces && a.pieces + b.pieces > kMaxPieces)
    return cat("more than ", kMaxPieces, " arrays joined");
  return {};
}

/// Where each row would be one thread's from its start to its end: because reductions depend on each other,
/// or a scan on another one or on a reduction. Says why there are too few rows for that, or nothing.
std::string Fuser::needs_rows(const Group& a, const Group& b, bool dependent) const {
  if (t_.strict && (a.scans || b.scans) && (a.reduces || b.reduces))
    return "scans and reductions combine in orders of their own (strict)";
  if (!dependent && !(a.scans && (b.scans || b.reduces)) && !(b.scans && a.reduces)) return {};
  const Group& r = a.signature ? a : b;
  return schedule::refuse_norm(r.rows, r.points / std::max<std::int64_t>(r.rows, 1), r.columns, t_);
}

/// Whether a GPU would run a loop in each phase: it keeps no values that loops make, and scans make steps of
/// their own.
bool Fuser::runs_loops_again(const Group& a, const Group& b, bool dependent) const {
  if (!t_.gpu || !(a.loops || b.loops)) return false;
  return dependent || a.phases || b.phases || a.scans || b.scans;
}

std::size_t Fuser::inputs_of(const Group& a, const Group& b) const {
  std::vector<NodeId> in;
  for (const Group* x : {&a, &b})
    for (std::uint32_t e : x->in_edges) {
      const int p = group_of_[edges_[e].producer];
      if (p >= 0 &&
          (&groups_[static_cast<std::size_t>(p)] == &a || &groups_[static_cast<std::size_t>(p)] == &b))
        continue;
      in.push_back(edges_[e].producer);
    }
  std::sort(in.begin(), in.end());
  return static_cast<std::size_t>(std::unique(in.begin(), in.end()) - in.begin());
}

bool Fuser::reaches(int a, int b) {
  if (order_.place(a) > order_.place(b)) return false;
  std::vector<int> found;
  forward(a, order_.place(b) + 1, found);
  return std::find(found.begin(), found.end(), b) != found.end();
}

/// Regions that read the same memory point by point become one.
void Fuser::merge_siblings() {
  std::vector<std::uint32_t> by_producer(edges_.size());
  std::iota(by_producer.begin(), by_producer.end(), 0u);
  std::stable_sort(by_producer.begin(), by_producer.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return edges_[a].producer < edges_[b].producer; });
  for (std::size_t i = 0; i + 1 < by_producer.size(); ++i) {
    const Edge &x = edges_[by_producer[i]], &y = edges_[by_producer[i + 1]];
    if (x.producer != y.producer || x.relation != Relation::Same || y.relation != Relation::Same) continue;
    int a = group_of_[x.consumer], b = group_of_[y.consumer];
    if (a == b) continue;
    if (order_.place(a) > order_.place(b)) std::swap(a, b);
    const Group &ga = groups_[static_cast<std::size_t>(a)], &gb = groups_[static_cast<std::size_t>(b)];
    if (ga.points != gb.points || ga.points == 0 || ga.library || gb.library) continue;
    if (row_[x.consumer] != ir::is_reduce(g_[x.consumer].op) ||
        row_[y.consumer] != ir::is_reduce(g_[y.consumer].op))
      continue;
    if (ga.signature && gb.signature && ga.signature != gb.signature) continue;
    if (runs_loops_again(ga, gb, false) || runs_against(ga, gb)) continue;
    if (!too_much(ga, gb).empty() || inputs_of(ga, gb) > kMaxEdges) continue;
    if (!needs_rows(ga, gb, false).empty() || reaches(a, b)) continue;
    between_.clear();
    forward(a, order_.place(b), between_);
    merge(a, b, {true, false, false, false});
  }
}

}  // namespace kiln::plan
