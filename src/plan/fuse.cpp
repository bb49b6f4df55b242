// Merging of regions.
//
// Every compute node begins as a region. An edge leads from a producer to a consumer through views, and knows
// how the consumer's points map onto the producer's: one to one in row-major order, as a row value spread
// over rows, or in some other way. Merges are tried by bytes saved, greatest first; one stands when the two
// regions' points line up, the merged region fits its caps and no path leads around it (region order is kept
// up to date as in Pearce and Kelly, "A dynamic topological sort algorithm for directed acyclic graphs",
// 2006).
//
// Terminates: each merge removes a region; each pass tries each edge once.
#include "plan/fuser.h"
#include "plan/recompute.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace kiln::plan {

Regions Fuser::run(std::vector<bool> recomputed) {
  recomputed_ = std::move(recomputed);
  find_tiled();
  classify();
  collect_edges();
  make_groups();
  inlined_.assign(groups_.size(), false);
  if (fusion_ == Fusion::Full) {
    merge_along_edges();
    // What siblings read together may no longer be worth storing for them.
    if (!t_.off.siblings && merge_siblings()) merge_along_edges();
    if (!t_.off.recompute) inline_regions();
    join_products();
  }
  return finish();
}

void Fuser::merge_along_edges() {
  std::vector<std::uint32_t> by_bytes(edges_.size());
  std::iota(by_bytes.begin(), by_bytes.end(), 0u);
  std::stable_sort(by_bytes.begin(), by_bytes.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return edges_[a].bytes > edges_[b].bytes; });
  bool merged = true;
  for (int pass = 0; merged && pass < 3; ++pass) {
    merged = false;
    for (std::uint32_t e : by_bytes) merged |= try_edge(e);
  }
}

/// Maps whose every reader takes them at other points (stencils, broadcasts) are recomputed there when the
/// model says that this takes less time than writing and reading them.
void Fuser::inline_regions() {
  std::vector<std::size_t> order(groups_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return stands_before(a, b); });
  for (std::size_t i : order) {
    inlined_[i] = cheaper_inlined(i);
    if (!inlined_[i]) continue;
    // Producers come first, so a reader that is inlined itself carries this cost along: no blow-up in a long
    // chain.
    for (std::uint32_t e : groups_[i].out_edges)
      if (const int to = group_of_[edges_[e].consumer]; to != static_cast<int>(i)) {
        groups_[static_cast<std::size_t>(to)].cost += groups_[i].cost;
        groups_[static_cast<std::size_t>(to)].pieces += groups_[i].pieces;
      }
  }
}

bool Fuser::cheaper_inlined(std::size_t i) {
  const Group& a = groups_[i];
  if (a.nodes.empty() || !a.is_map() || a.loops || a.library || a.points == 0 || a.points < t_.fuse_least)
    return false;
  double input_bytes = 0, bytes = 0;
  int reads = 0;
  std::map<std::size_t, int> readers;  // and how often each reads it
  for (NodeId n : a.nodes)
    // a view that computes is there to be stored
    if (is_root_[n] || ir::is_view(g_[n].op) || is_apart(n)) return false;
  for (std::uint32_t e : a.in_edges)
    if (group_of_[edges_[e].producer] != static_cast<int>(i))
      input_bytes += static_cast<double>(edges_[e].bytes);
  for (std::uint32_t e : a.out_edges) {
    const auto to = static_cast<std::size_t>(group_of_[edges_[e].consumer]);
    if (to == i) continue;
    const Group& b = groups_[to];
    ++reads;
    ++readers[to];
    if (b.library || b.cost + a.cost * static_cast<float>(reads) > static_cast<float>(t_.max_prims) ||
        !too_much(a, b).empty() || are_sums_in_turn(a, b))
      return false;
    bytes = static_cast<double>(edges_[e].bytes);
  }
  for (const auto& [reader, times] : readers)
    if (has_any(groups_[reader], orders_.together)) return true;
  const double points = static_cast<double>(a.points);
  const double apart = t_.launch_ns + a.cost * points / t_.prims_per_ns + (1 + reads) * t_.traffic_ns(bytes) +
                       t_.traffic_ns(input_bytes);
  double inside = reads * t_.traffic_ns(input_bytes), separate = apart;
  if (reads_near(a)) {  // what is read again comes from the second cache, here and there
    const double once = memory_below(a);
    inside = t_.traffic_ns(once) + (reads - 1) * once / t_.cached_bytes_per_ns;
    separate = t_.launch_ns + a.cost * points / t_.prims_per_ns + t_.traffic_ns(once) +
               2 * t_.traffic_ns(bytes) + (reads - 1) * bytes / t_.cached_bytes_per_ns;
  }
  for (const auto& [reader, times] : readers)
    inside += time_for(groups_[reader], cost_again(a) * static_cast<float>(times));
  return inside < separate;
}

/// Whether a GPU's readers of a map are gathers that find what it is made of again before the second cache
/// has lost it: within the points of the axes from the one on along which indices say where.
bool Fuser::reads_near(const Group& a) const {
  constexpr std::int64_t kShare = 8;  // of the second cache: the rest has what other blocks read
  if (!t_.gpu) return false;
  const double below = memory_below(a);
  return std::ranges::all_of(a.out_edges, [&](std::uint32_t id) {
    const Edge& e = edges_[id];
    const GraphNode &reader = g_[e.consumer], &made = g_[e.producer];
    if (&groups_[static_cast<std::size_t>(group_of_[e.consumer])] == &a) return true;
    if (reader.op != Op::gather || reader.in[0] != e.producer) return false;
    std::int64_t slabs = 1;
    for (std::size_t d = 0; d < ir::attributes<ir::Gather>(reader).axis; ++d) slabs *= made.dims[d];
    return below * kShare <= static_cast<double>(t_.l2_bytes * t_.threads * slabs);
  });
}

/// Bytes of the arrays that a map is made of, and those made of that are made again with it: each once.
double Fuser::memory_below(const Group& a) const {
  std::vector<NodeId> found;
  std::vector<const Group*> stack{&a}, seen{&a};
  while (!stack.empty()) {
    const Group& x = *stack.back();
    stack.pop_back();
    for (const std::uint32_t e : x.in_edges) {
      const int from = group_of_[edges_[e].producer];
      if (from < 0 || !inlined_[static_cast<std::size_t>(from)]) {
        if (from < 0 || &groups_[static_cast<std::size_t>(from)] != &x) found.push_back(edges_[e].producer);
      } else if (const Group* made = &groups_[static_cast<std::size_t>(from)];
                 std::ranges::find(seen, made) == seen.end()) {
        seen.push_back(made);
        stack.push_back(made);
      }
    }
  }
  std::ranges::sort(found);
  const auto repeated = std::ranges::unique(found);
  found.erase(repeated.begin(), repeated.end());
  double bytes = 0;
  for (const NodeId n : found) bytes += static_cast<double>(g_[n].numel * size_of(g_[n].dtype));
  return bytes;
}

/// Primitives a point that a map takes where its readers make it again. A GPU looks the place of a gather up
/// once for several points of an outer axis along which its indices are the same (lower/region_strips.cpp).
float Fuser::cost_again(const Group& a) const {
  constexpr float kElement = 2;  // at a place that is known
  constexpr std::int64_t kRows = 8;
  float cost = a.cost;
  for (const NodeId n : a.nodes) {
    const GraphNode& x = g_[n];
    if (!t_.gpu || x.op != Op::gather) continue;
    const ir::Dims indices = g_[x.in[1]].dims;
    const std::size_t outer = x.dims.size() - indices.size();
    std::int64_t alike = 1;
    for (std::size_t d = 0; d < x.dims.size() && (d < outer || indices[d - outer] == 1); ++d)
      alike *= x.dims[d];
    if (alike >= kRows) cost -= std::max(0.0f, t_.cost_of(static_cast<int>(x.op)) - kElement);
  }
  return cost;
}

/// What so many primitives more a point add to a region's time: nothing while it waits for memory.
double Fuser::time_for(const Group& b, float prims) const {
  double bytes = 0;
  std::vector<NodeId> moved;
  const auto here = static_cast<int>(&b - groups_.data());
  for (std::uint32_t e : b.in_edges)
    if (group_of_[edges_[e].producer] != here) moved.push_back(edges_[e].producer);
  for (std::uint32_t e : b.out_edges)
    if (group_of_[edges_[e].consumer] != here) moved.push_back(edges_[e].producer);
  for (NodeId n : b.nodes)
    if (is_root_[n]) moved.push_back(n);
  std::sort(moved.begin(), moved.end());
  moved.erase(std::unique(moved.begin(), moved.end()), moved.end());
  for (NodeId n : moved) bytes += static_cast<double>(g_[n].numel * size_of(g_[n].dtype));
  const double per_prim = static_cast<double>(b.points) / t_.prims_per_ns, memory = t_.traffic_ns(bytes);
  return std::max(memory, (b.cost + prims) * per_prim) - std::max(memory, b.cost * per_prim);
}

/// The region that a group becomes. Pre: `out` says which nodes are stored.
Region Fuser::region_of(Group& x, Regions& out) const {
  Region r;
  if (x.library) r.kind = x.loops ? Region::Kind::Loop : Region::Kind::Library;
  // A CPU's library makes a product alone; a GPU's main loop is a kernel in any case.
  const bool main_loop =
      t_.gpu && is_contraction(x) && (takes_epilogue(x) || x.second != kNoNode) && x.points > 0;
  if (is_contraction(x) && (x.nodes.size() > 1 || main_loop)) {
    r.kind = Region::Kind::Contraction;
    r.product = x.root_node;
    // Whoever holds a product may read it later: storing it costs less than making it again.
    r.second = x.second;
    for (const NodeId product : {r.product, r.second})
      if (product != kNoNode && g_[product].held) out.stored[product] = true;
  }
  if (x.tiled >= 0) {
    r.kind = tiled_[static_cast<std::size_t>(x.tiled)].kind;
    r.tiled = tiled_[static_cast<std::size_t>(x.tiled)].index;
  }
  r.nodes = std::move(x.nodes);
  std::sort(r.nodes.begin(), r.nodes.end());
  for (NodeId n : r.nodes) {
    if (out.stored[n]) r.outputs.push_back(n);
    if (place_[n] != x.levels.place[0]) r.rows.push_back(n);
    if (x.levels.n > 2) r.places.push_back(x.levels.find(place_[n]));
  }
  r.nest = x.levels.n > 2 && !x.levels.apart;
  for (int a = 0; a < x.space.n && x.levels.n > 2; ++a) {
    std::uint32_t has = 0;
    for (int l = 0; l < x.levels.n; ++l) has |= (x.levels.place[l] >> a & 1) << l;
    r.axes.push_back({x.space.extent[a], has});
  }
  return r;
}

Regions Fuser::finish() {
  Regions out;
  out.stored.assign(g_.size(), false);
  out.loops = std::move(loops_);
  for (auto& [product, view] : windows_)
    out.windows.emplace(product, std::make_shared<const WindowView>(std::move(view)));
  out.attentions = std::move(attentions_);
  out.pair_sums = std::move(pair_sums_);
  out.refusals = std::move(near_misses_);
  for (NodeId id = 0; id < g_.size(); ++id)
    if (g_[id].op == Op::leaf || is_written_in_place(g_[id])) out.stored[id] = true;
  auto store = [&](NodeId id) {
    if (group_of_[id] >= 0 && !inlined_[static_cast<std::size_t>(group_of_[id])]) out.stored[id] = true;
  };
  for (NodeId r : g_.roots) {
    if (group_of_[r] >= 0) {
      store(r);
    } else if (ir::is_view(g_[r].op)) {
      store(resolve_alias(g_, r).base);
    }
  }
  for (std::size_t i = 0; i < edges_.size(); ++i) {
    const Edge& e = edges_[i];
    if (group_of_[e.producer] < 0) continue;
    const auto a = static_cast<std::size_t>(group_of_[e.producer]),
               b = static_cast<std::size_t>(group_of_[e.consumer]);
    if (a == b) continue;
    store(e.producer);
    if (!inlined_[a] && i < reasons_.size() && !reasons_[i].empty())
      out.refusals.push_back(
          {e.producer, e.consumer, reasons_[i].is_later() ? why_not_in_line(e) : reasons_[i]});
  }
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < groups_.size(); ++i)
    if (!groups_[i].nodes.empty() && !inlined_[i]) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return stands_before(a, b); });
  for (std::size_t i : order) {
    Region r = region_of(groups_[i], out);
    if (!r.outputs.empty()) out.regions.push_back(std::move(r));
  }
  return out;
}

std::vector<bool> tiled_nodes(const Graph& graph, const schedule::Target& target) {
  const Orders none;
  return Fuser(graph, target, target.off.all ? Fusion::None : Fusion::Full, none).tiled_nodes();
}

Regions fuse(const Graph& graph, const schedule::Target& target, Fusion fusion, const Orders& orders) {
  if (target.off.all) fusion = Fusion::None;
  Fuser tiles(graph, target, fusion, orders);
  tiles.find_tiled();
  Regions regions = Fuser(tiles).run();
  if (fusion != Fusion::Full || regions.regions.size() < 2 || target.off.recompute) return regions;
  // What is made of an array that is no longer stored may be worth it in a second round.
  constexpr int kRounds = 2;
  std::vector<bool> all;
  double traffic = 0;  // of the regions; 0: not known yet
  for (int round = 0; round < kRounds; ++round) {
    std::vector<bool> again = worth_recomputing(graph, regions, target);
    for (const Apart& a : orders.apart)
      if (!again.empty()) again[a.node] = false;
    if (std::ranges::find(again, true) == again.end()) return regions;
    if (all.empty()) all.resize(again.size());
    for (std::size_t i = 0; i < again.size(); ++i)
      if (again[i]) all[i] = true;
    Regions other = Fuser(tiles).run(all);
    if (traffic == 0) traffic = traffic_of(graph, regions, target);
    const double less = traffic_of(graph, other, target);
    if (less >= traffic) return regions;
    regions = std::move(other);
    traffic = less;
  }
  return regions;
}

}  // namespace kiln::plan
