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
constexpr int kMaxPieces = 96;        // of all arrays that are joined by pads: LLVM takes seconds for more
constexpr int kMaxPiecesOfGpu = 192;  // the same for a GPU

/// The atoms of a reduction or scan. There is a kept one and another, if need be of one element.
static void lay_out(Group& group, const std::vector<Run>& axes) {
  AtomSet kept = 0;
  const auto add = [&](std::int64_t extent, bool repeated) {
    if (!repeated) kept |= AtomSet{1} << group.space.n;
    group.space.add(extent);
  };
  const auto none = [&](bool repeated) {
    return std::none_of(axes.begin(), axes.end(), [&](const Run& r) { return r.repeated == repeated; });
  };
  if (none(false)) add(1, false);
  for (const Run& r : axes) add(r.extent, r.repeated);
  if (none(true)) add(1, true);
  group.levels.add(group.space.all());
  group.levels.add(kept);
}

/// The group of an operation by itself.
Group Fuser::group_alone(NodeId id) {
  const GraphNode& x = g_[id];
  Group group;
  group.root_node = id;
  group.nodes = {id};
  group.cost = widens(x) ? 0.0f : std::max(1.0f, t_.cost_of(static_cast<int>(x.op)));
  group.library = ir::is_library(x.op) || tiled_of_[id] >= 0;
  group.tiled = tiled_of_[id];
  group.reductions = ir::is_reduce(x.op) || ir::is_scan(x.op);
  group.stored = is_root_[id];
  for (const NodeId in : x.in)
    if (pieces_[in] > 1) group.pieces += pieces_[in];
  group.points = x.numel;
  if (ir::is_reduce(x.op)) {
    const ir::Dims in = g_[x.in[0]].dims;
    std::vector<Run> axes;
    for (std::size_t a = 0; a < in.size(); ++a)
      add_run(axes, 0, {in[a], ir::attributes<ir::Reduce>(x).over(a)});
    lay_out(group, axes);
    group.points = g_[x.in[0]].numel;
    group.reduces = true;
    group.forwards = ir::has(x.op, ir::POSITION);  // the first of equals
  }
  if (of_loop(x)) {
    const ir::LoopParts& l = loops_.of_result(g_, id);
    group.points = Shape(elements_of(x)).numel();
    group.loops = true;
    group.library = !inside_a_kernel(l);
    for (NodeId inside : l.body) group.cost += t_.cost_of(static_cast<int>(g_[inside].op));
  }
  if (ir::is_scan(x.op)) {
    const auto [axis, exclusive, reverse] = ir::attributes<ir::Scan>(x);
    std::vector<Run> axes;
    for (std::size_t a = 0; a < x.dims.size(); ++a) add_run(axes, 0, {x.dims[a], a == axis});
    lay_out(group, axes);
    group.scans = true;
    (reverse ? group.backwards : group.forwards) = true;
  }
  if (group.space.n == 0) {
    group.space.add(group.points);
    group.levels.add(group.space.all());
  }
  return group;
}

void Fuser::make_groups() {
  group_of_.assign(g_.size(), -1);
  place_.assign(g_.size(), 0);
  for (const NodeId id : in_order()) {
    if (transparent_[id]) continue;
    const GraphNode& x = g_[id];
    if (of_loop(x) && join_results(id)) continue;
    if (x.op == Op::part) {
      join_parts(id);
      continue;
    }
    Group group = group_alone(id);
    place_[id] = group.levels.place[group.reduces ? 1 : 0];
    group_of_[id] = static_cast<int>(groups_.size());
    if (group.tiled >= 0) {
      group.nodes.clear();
      for (NodeId n : tiled(id).nodes) {
        if (transparent_[n]) continue;
        group.nodes.push_back(n);
        group_of_[n] = group_of_[id];
        place_[n] = place_[id];
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
  find_chain();
}

/// Puts a result of an op of several beside the op, whose group the first of them makes.
void Fuser::join_parts(NodeId id) {
  const NodeId bundle = g_[id].in[0];
  if (group_of_[bundle] < 0) {
    group_of_[bundle] = static_cast<int>(groups_.size());
    Group& made = groups_.emplace_back();
    made.root_node = bundle;
    made.nodes = {bundle};
    made.cost = 1;
    made.library = true;
    made.points = g_[bundle].numel;
    made.space.add(made.points);
    made.levels.add(made.space.all());
    place_[bundle] = made.levels.place[0];
    order_.push_back();
  }
  group_of_[id] = group_of_[bundle];
  Group& all = group(bundle);
  place_[id] = all.levels.place[0];
  all.nodes.push_back(id);
  all.stored += is_root_[id];
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
    place_[id] = group.levels.place[0];
    return true;
  }
  return false;
}

/// Two groups as one, where every edge between them joins the places of its ends.
std::optional<Fuser::Fit> Fuser::fit(const Group& a, const Group& b) {
  constexpr int kPasses = 4;  // over the edges, of which later ones may cut what earlier ones joined
  Fit f{Unifier(a.space, b.space), {}, false};
  // A value may have thousands of readers: of the two lists that have the edges between them, the shorter.
  const bool by_readers = a.out_edges.size() < b.in_edges.size();
  const auto each = [&](const auto& visit) {
    for (std::uint32_t id : by_readers ? a.out_edges : b.in_edges) {
      const Edge& e = edges_[id];
      const bool between =
          by_readers ? &group(e.consumer) == &b : group_of_[e.producer] == group_of_[a.root_node];
      if (between && !visit(e)) return false;
    }
    return true;
  };
  for (int pass = 0; pass == 0 || f.atoms.changed(); ++pass)
    if (pass == kPasses || !each([&](const Edge& e) { return unify(f, e); })) return std::nullopt;
  if (!f.atoms.finish() || !join_levels(a, b, f)) return std::nullopt;
  each([&](const Edge& e) {
    f.dependent |= f.atoms.of(0, place_[e.producer]) != f.atoms.of(1, reads_at(e.consumer));
    return true;
  });
  return f;
}

bool Fuser::unify(Fit& f, const Edge& e) {
  switch (e.relation) {
    case Relation::Same: return f.atoms.same(place_[e.producer], reads_at(e.consumer));
    case Relation::Spread: return f.atoms.spread(place_[e.producer], reads_at(e.consumer), runs_of(e));
    case Relation::Other: return false;
  }
  return false;
}

/// The places of both groups as one sequence, in which each is what a reduction leaves of the one before; or
/// else each what a reduction leaves of the whole.
bool Fuser::join_levels(const Group& a, const Group& b, Fit& f) {
  Levels of[2] = {a.levels, b.levels};
  for (int side = 0; side < 2; ++side)
    for (int l = 0; l < of[side].n; ++l) of[side].place[l] = f.atoms.of(side, of[side].place[l]);
  if (!of[0].apart && !of[1].apart && join_in_sequence(of[0], of[1], f)) return true;
  f.levels = {};
  return join_apart(of[0], of[1], f);
}

bool Fuser::join_in_sequence(const Levels& a, const Levels& b, Fit& f) {
  const Levels* of[2] = {&a, &b};
  int at[2] = {};
  while (at[0] < a.n || at[1] < b.n) {
    const bool has[2] = {at[0] < a.n, at[1] < b.n};
    AtomSet next = has[0] ? a.place[at[0]] : b.place[at[1]];
    if (has[0] && has[1] && b.place[at[1]] != next) {
      const AtomSet other = b.place[at[1]];
      if ((next & other) != next && (next & other) != other) return false;
      if ((next & other) == next) next = other;  // the larger first
    }
    bool made = f.levels.n == 0;
    for (int side = 0; side < 2; ++side) {
      if (!has[side] || of[side]->place[at[side]] != next) continue;
      if (at[side] > 0) {
        // a reduction that would skip a level reads more than the loops of its own level
        if (of[side]->place[at[side] - 1] != f.levels.place[f.levels.n - 1]) return false;
        made = true;
      }
      ++at[side];
    }
    if (!made || f.levels.n == Levels::kMost) return false;
    f.levels.add(next);
  }
  return f.levels.place[0] == f.atoms.space().all();
}

bool Fuser::join_apart(const Levels& a, const Levels& b, Fit& f) {
  f.levels.apart = true;
  f.levels.add(f.atoms.space().all());
  for (const Levels* x : {&a, &b}) {
    if (x->n > 2 && !x->apart) return false;
    if (x->n > 1 && x->place[0] != f.levels.place[0]) return false;
    for (int l = 1; l < x->n; ++l) {
      if (f.levels.find(x->place[l]) < f.levels.n) continue;
      if (f.levels.n == Levels::kMost) return false;
      f.levels.add(x->place[l]);
    }
  }
  for (const Levels* x : {&a, &b})
    if (f.levels.find(x->place[0]) == f.levels.n) return false;  // a map that stands nowhere
  return f.levels.n > 2;
}

bool Fuser::try_edge(std::uint32_t id) {
  const Edge& e = edges_[id];
  if (group_of_[e.producer] < 0) return false;
  const int a = group_of_[e.producer], b = group_of_[e.consumer];
  if (a == b) return false;
  return try_merge(a, b, id);
}

bool Fuser::refuse(std::uint32_t edge, Why why) {
  if (reasons_.size() <= edge) reasons_.resize(edges_.size());
  reasons_[edge] = std::move(why);
  return false;
}

bool Fuser::try_merge(int ia, int ib, std::uint32_t edge) {
  Group &a = groups_[static_cast<std::size_t>(ia)], &b = groups_[static_cast<std::size_t>(ib)];
  if (t_.off.epilogue && (is_contraction(a) || is_contraction(b)))
    return refuse(edge, because(FusionReason::SwitchedOff, "epilogue"));
  const auto is_custom = [&](const Group& x) { return g_[x.root_node].op == Op::custom; };
  if (a.library || b.library)
    return refuse(edge, a.tiled >= 0 || b.tiled >= 0             ? FusionReason::AttentionAlone
                        : a.loops || b.loops                     ? FusionReason::WholeLoop
                        : is_contraction(a) || is_contraction(b) ? FusionReason::ProductsAreLibraryCalls
                        : is_custom(a) || is_custom(b)           ? FusionReason::CustomKernel
                                                                 : FusionReason::LibraryCalls);
  if (a.points == 0 || b.points == 0) return refuse(edge, FusionReason::NoElements);
  if (std::max(a.points, b.points) < t_.fuse_least)
    return refuse(edge, because(FusionReason::TooSmall, t_.fuse_least));
  if (Why why = too_much(a, b); !why.empty()) return refuse(edge, std::move(why));
  if (are_sums_in_turn(a, b)) return refuse(edge, FusionReason::TwoProducts);
  if (a.in_edges.size() + b.in_edges.size() > kMaxEdges * 4 && inputs_of(a, b).size() > kMaxEdges)
    return refuse(edge, because(FusionReason::TooManyInputs, kMaxEdges));
  const std::optional<Fit> f = fit(a, b);
  if (!f) return refuse(edge, Why::later());
  if (runs_against(a, b)) return refuse(edge, FusionReason::BothEnds);
  if (runs_loops_again(a, b, f->dependent)) return refuse(edge, FusionReason::LoopRunsAgain);
  Why why = f->levels.apart   ? refuse_slab(a, b, *f)
            : f->levels.n > 2 ? refuse_nest(a, b, *f)
                              : needs_rows(a, b, f->dependent);
  if (!why.empty()) return refuse(edge, std::move(why));
  if (path_around(ia, ib))
    return join_between(ia, ib) ? try_edge(edge) : refuse(edge, FusionReason::KernelBetween);
  merge(ia, ib, *f);
  return true;
}

/// The last product whose result only this map reads, itself or by a cast, and that can take it along (a
/// GPU's takes a sum: plan/product_rows.h); or none.
NodeId Fuser::own_product(const Group& x) const {
  if ((!t_.epilogues && !t_.gpu) || !x.is_map() || x.library) return kNoNode;
  NodeId last = kNoNode;
  for (const std::uint32_t in : x.in_edges) {
    const int from = group_of_[edges_[in].producer];
    if (from < 0) continue;
    const Group& y = groups_[static_cast<std::size_t>(from)];
    const auto is_read_here = [&](std::uint32_t out) {
      const int to = group_of_[edges_[out].consumer];
      return to >= 0 && &groups_[static_cast<std::size_t>(to)] == &x;
    };
    if (y.nodes.size() != 1 || y.points != x.points || !std::ranges::all_of(y.out_edges, is_read_here))
      continue;
    const bool is_cast = !y.library && g_[y.root_node].op == Op::cast;
    const NodeId product = is_contraction(y) ? y.root_node : is_cast ? own_product(y) : kNoNode;
    if (product != kNoNode) last = last == kNoNode ? product : std::max(last, product);
  }
  return last;
}

bool Fuser::only_adds(const Group& x) const {
  return std::ranges::all_of(x.nodes,
                             [&](NodeId id) { return g_[id].op == Op::add || g_[id].op == Op::cast; });
}

/// Whether a adds a product's result to another value, and b the next one's to that: apart, each product can
/// add to what those before it gave, in as many passes over memory as one sum of stored results takes.
bool Fuser::are_sums_in_turn(const Group& a, const Group& b) const {
  const NodeId then = own_product(b);
  if (then == kNoNode) return false;
  const NodeId first = own_product(a);
  return first != kNoNode && first < then && only_adds(a);
}

/// Lets a take along one of the small maps that lie between it and b, such as the mean that is made of a sum
/// of rows: those are tried last by themselves, when b may have joined others.
bool Fuser::join_between(int ia, int ib) {
  constexpr std::int64_t kMuchSmaller = 8;  // times
  constexpr std::size_t kMost = 16;         // maps that are looked at
  const std::int64_t points = groups_[static_cast<std::size_t>(ib)].points;
  std::vector<int> seen{ib};
  for (std::size_t i = 0; i < seen.size(); ++i)
    for (const std::uint32_t e : groups_[static_cast<std::size_t>(seen[i])].in_edges) {
      const int from = group_of_[edges_[e].producer];
      if (from < 0 || std::ranges::find(seen, from) != seen.end()) continue;
      if (from == ia) {
        if (i > 0 && try_edge(e)) return true;
        continue;
      }
      const Group& x = groups_[static_cast<std::size_t>(from)];
      if (x.is_map() && !x.library && x.points * kMuchSmaller <= points && seen.size() < kMost)
        seen.push_back(from);
    }
  return false;
}

/// Whether one of both reads a value of the other that is to be stored for its readers.
Why Fuser::kept_apart(const Group& a, const Group& b) const {
  const auto here = [&](const Group& x) { return static_cast<int>(&x - groups_.data()); };
  for (const auto& [from, to] : {std::pair(&a, &b), std::pair(&b, &a)})
    for (const std::uint32_t e : from->out_edges) {
      if (group_of_[edges_[e].consumer] != here(*to)) continue;
      const auto at = std::ranges::find(apart_, edges_[e].producer, &Apart::node);
      if (at != apart_.end()) return at->why;
    }
  return {};
}

/// Why one kernel of both would take the compiler too long, or nothing.
Why Fuser::too_much(const Group& a, const Group& b) const {
  if (!apart_.empty())
    if (Why why = kept_apart(a, b); !why.empty()) return why;
  if (a.cost + b.cost > static_cast<float>(t_.max_prims))
    return because(FusionReason::TooManyPrimitives, a.cost + b.cost, t_.max_prims);
  if (a.reductions + b.reductions > kMaxReductions)
    return because(FusionReason::TooManyReductions, kMaxReductions);
  if (a.stored + b.stored > kMaxStored) return because(FusionReason::TooManyStored, kMaxStored);
  const int most_pieces = t_.gpu ? kMaxPiecesOfGpu : kMaxPieces;
  if (a.pieces && b.pieces && a.pieces + b.pieces > most_pieces)
    return because(FusionReason::TooManyPieces, most_pieces);
  return {};
}

/// Where each row would be one thread's from its start to its end: because reductions depend on each other,
/// or a scan on another one or on a reduction. Says why there are too few rows for that, or nothing.
Why Fuser::needs_rows(const Group& a, const Group& b, bool dependent) const {
  if (t_.strict && (a.scans || b.scans) && (a.reduces || b.reduces)) return FusionReason::StrictScans;
  if (!dependent && !(a.scans && (b.scans || b.reduces)) && !(b.scans && a.reduces)) return {};
  if (t_.off.norm) return because(FusionReason::SwitchedOff, "norm");
  const Group& r = a.is_map() ? b : a;
  if (has_any(b, orders_.together) && !t_.strict) return {};
  schedule::NormFacts n;
  n.rows = r.rows();
  n.length = r.points / std::max<std::int64_t>(n.rows, 1);
  n.columns = r.columns();
  n.run = r.last_kept();
  // Short runs do for a block that has whole rows of a slab, unless it keeps values in parts, as of a
  // logsumexp, which many parts of it take long to combine.
  constexpr std::int64_t kLongRun = 64;
  const auto in_parts = [&](NodeId id) { return ir::info(g_[id].op).fold == ir::Fold::LogAddExp; };
  if (!r.rows_adjoin() || std::ranges::any_of(a.nodes, in_parts) || std::ranges::any_of(b.nodes, in_parts))
    n.run = std::max(kLongRun, n.run);
  std::int64_t bytes = 0;
  for (const NodeId in : inputs_of(a, b))
    if (g_[in].numel >= r.points) bytes += size_of(g_[in].dtype);
  n.bytes = std::min(n.bytes, bytes);  // some of wider ones are still there, too
  return schedule::refuse_norm(n, t_);
}

/// Bytes that a kernel of these groups reads and writes, each value once.
double Fuser::bytes_moved(std::initializer_list<const Group*> groups) {
  std::vector<NodeId> moved;
  const auto inside = [&](NodeId n) {
    return group_of_[n] >= 0 && std::find(groups.begin(), groups.end(), &group(n)) != groups.end();
  };
  for (const Group* x : groups) {
    for (std::uint32_t e : x->in_edges)
      if (!inside(edges_[e].producer)) moved.push_back(edges_[e].producer);
    for (std::uint32_t e : x->out_edges)
      if (!inside(edges_[e].consumer)) moved.push_back(edges_[e].producer);
    for (NodeId n : x->nodes)
      if (is_root_[n]) moved.push_back(n);
  }
  std::sort(moved.begin(), moved.end());
  moved.erase(std::unique(moved.begin(), moved.end()), moved.end());
  double bytes = 0;
  for (NodeId n : moved) bytes += static_cast<double>(g_[n].numel * size_of(g_[n].dtype));
  return bytes;
}

/// Whether a GPU would run a loop in each phase: it keeps no values that loops make, and scans make steps of
/// their own.
bool Fuser::runs_loops_again(const Group& a, const Group& b, bool dependent) const {
  if (!t_.gpu || !(a.loops || b.loops)) return false;
  return dependent || a.phases || b.phases || a.scans || b.scans;
}

/// What both read of others, each once.
std::vector<NodeId> Fuser::inputs_of(const Group& a, const Group& b) const {
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
  in.erase(std::unique(in.begin(), in.end()), in.end());
  return in;
}

bool Fuser::reads(int b, int a) const {
  const std::vector<std::uint32_t>& in = groups_[static_cast<std::size_t>(b)].in_edges;
  return std::any_of(in.begin(), in.end(),
                     [&](std::uint32_t e) { return group_of_[edges_[e].producer] == a; });
}

/// Regions that read the same memory point by point become one. Says whether any did.
bool Fuser::merge_siblings() {
  bool merged = false;
  constexpr std::size_t kNear = 8;  // readers of one array that are tried with each of them
  std::vector<std::uint32_t> by_producer(edges_.size());
  std::iota(by_producer.begin(), by_producer.end(), 0u);
  std::stable_sort(by_producer.begin(), by_producer.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return edges_[a].producer < edges_[b].producer; });
  for (std::size_t i = 0; i + 1 < by_producer.size(); ++i)
    for (std::size_t j = i + 1; j < std::min(by_producer.size(), i + kNear); ++j) {
      const Edge &x = edges_[by_producer[i]], &y = edges_[by_producer[j]];
      if (x.producer != y.producer) break;
      if (x.relation == Relation::Same && y.relation == Relation::Same)
        merged |= merge_readers(x.consumer, y.consumer);
    }
  return merged;
}

/// Makes one region of those of two nodes that read the same memory point by point, where it fits.
bool Fuser::merge_readers(NodeId x, NodeId y) {
  int a = group_of_[x], b = group_of_[y];
  if (a == b) return false;
  if (order_.place(a) > order_.place(b)) std::swap(a, b);
  const Group &ga = groups_[static_cast<std::size_t>(a)], &gb = groups_[static_cast<std::size_t>(b)];
  if (has_any(ga, orders_.alone) || has_any(gb, orders_.alone)) return false;
  if (ga.points != gb.points || ga.points == 0 || ga.points < t_.fuse_least || ga.library || gb.library)
    return false;
  const auto reads_all = [&](NodeId id) { return reads_at(id) == group(id).levels.place[0]; };
  if (!reads_all(x) || !reads_all(y)) return false;
  Fit f{Unifier(ga.space, gb.space), {}, false};
  if (!f.atoms.same(ga.levels.place[0], gb.levels.place[0]) || !f.atoms.finish() || !join_levels(ga, gb, f))
    return false;
  if (f.levels.n > 2 && (!f.levels.apart || !t_.gpu || !refuse_slab(ga, gb, f, true).empty())) return false;
  if (runs_loops_again(ga, gb, false) || runs_against(ga, gb)) return false;
  if (!too_much(ga, gb).empty() || inputs_of(ga, gb).size() > kMaxEdges) return false;
  if (!needs_rows(ga, gb, false).empty() || reads(b, a) || path_around(a, b)) return false;
  merge(a, b, f);
  return true;
}

}  // namespace kiln::plan
