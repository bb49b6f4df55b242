// The state of merging, for the files that implement it: fuse.cpp (the passes and the result, recomputation),
// fuse_tiled.cpp (what is computed tile by
// tile), fuse_edges.cpp (which nodes compute, and who reads whom), fuse_groups.cpp (what may merge),
// fuse_levels.cpp (the same of values at several places), fuse_order.cpp (the order of regions, kept while
// they merge), fuse_products.cpp (what a matrix product takes along).
#pragma once

#include "plan/atoms.h"
#include "plan/attention.h"
#include "plan/fuse.h"
#include "plan/pair_sums.h"
#include "plan/sequence.h"
#include "plan/window_view.h"
#include "schedule/schedule.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace kiln::plan {

using ir::GraphNode;
using ir::kNoNode;
using ir::Op;
using ir::OpKind;

enum class Relation : std::uint8_t { Same, Spread, Other };

struct Edge {
  NodeId producer, consumer;
  Relation relation;
  std::uint32_t first_run = 0, runs = 0;  // Spread: kept and repeated axes of the consumer, in runs_
  std::int64_t bytes = 0;
};

/// The places of a region's values: the whole of its space first, then what is left of it by one reduction
/// after the other; or, where they go `apart`, by each reduction.
struct Levels {
  static constexpr int kMost = 6;
  int n = 0;
  bool apart = false;
  AtomSet place[kMost];

  void add(AtomSet p) { place[n++] = p; }
  int find(AtomSet p) const {
    int at = 0;
    while (at < n && place[at] != p) ++at;
    return at;
  }
};

struct Group {
  NodeId root_node;         // representative
  NodeId second = kNoNode;  // of a product: another that the same maps read, side by side
  bool library = false;
  int tiled = -1;  // what is computed tile by tile: index
  Space space;
  Levels levels;  // one: a map
  bool reduces = false, scans = false, loops = false;
  bool phases = false;                       // reductions that depend on others
  bool forwards = false, backwards = false;  // what must meet the elements of a row in this order
  std::int64_t points = 0;                   // of the whole space
  float cost = 0;
  int reductions = 0;  // and scans: each may begin a phase
  int stored = 0;      // results that somebody holds
  int pieces = 0;      // what its nodes see through pads
  std::vector<NodeId> nodes;
  std::vector<std::uint32_t> in_edges, out_edges;
  // of a chain of products, each of which reads the one before: the first that reads the group, the last that
  // the group reads
  int first_product = std::numeric_limits<int>::max(), last_product = -1;

  bool is_map() const { return levels.n == 1; }
  /// Kept points; of a map: points.
  std::int64_t rows() const { return space.points(levels.place[levels.n - 1]); }
  /// Whether the outer axes are reduced.
  bool columns() const { return !is_map() && space.ends_in(levels.place[1]); }
  /// Whether what is reduced to the last points that are kept lies in one piece: behind other kept ones.
  bool rows_adjoin() const {
    int changes = 0;
    bool kept = true;
    for (int i = space.n; i-- > 0;) {
      if (space.extent[i] == 1) continue;
      changes += kept != ((levels.place[levels.n - 1] >> i & 1) != 0);
      kept = (levels.place[levels.n - 1] >> i & 1) != 0;
    }
    return changes <= 2;
  }
  /// Points of the last atoms that a reduction keeps.
  std::int64_t last_kept() const {
    std::int64_t run = 1;
    for (int i = space.n; i-- > 0 && (space.extent[i] == 1 || (levels.place[levels.n - 1] >> i & 1) != 0);)
      run *= space.extent[i];
    return run;
  }
};

/// Adds axes to the runs from `first` on: extents of 1 dropped, equal neighbours joined.
inline void add_run(std::vector<Run>& runs, std::size_t first, Run axis) {
  if (axis.extent == 1) return;
  if (runs.size() > first && runs.back().repeated == axis.repeated)
    runs.back().extent *= axis.extent;
  else
    runs.push_back(axis);
}

class Fuser {
 public:
  Fuser(const Graph& g, const schedule::Target& t, Fusion fusion, const Orders& orders)
      : g_(g), t_(t), fusion_(fusion), apart_(orders.apart), orders_(orders) {}
  /// What is computed tile by tile. It does not depend on what is recomputed.
  void find_tiled();
  /// `recomputed`: nodes, elementwise ones, that are to be made wherever they are read; empty: none.
  Regions run(std::vector<bool> recomputed = {});
  std::vector<bool> tiled_nodes();

 private:
  void merge_along_edges();

  // ---- nodes
  bool generator(NodeId id) const { return generator_cost_[id] >= 0; }
  bool transparent(NodeId id) const { return transparent_[id]; }
  /// Nodes that one region computes tile by tile: an attention, or sums over pairs.
  struct Tiled {
    Region::Kind kind;
    int index;                  // into attentions_ or pair_sums_
    NodeId end;                 // the last of nodes
    std::vector<NodeId> nodes;  // that the region takes the place of
    std::vector<NodeId> bases;  // the memory that it reads
  };
  std::vector<PairSums> wanted_sums(const PairFacts& facts, std::vector<Refusal>& misses) const;
  void choose_attentions(const PairFacts& facts, std::span<const PairSums> sums,
                         const std::vector<NodeId>& readers);
  void note_given_up(const PairSums& s, std::vector<Refusal>& misses) const;
  void find_windows();
  bool looks_like_scores(NodeId product) const;
  bool add_tiled(const std::vector<PairSums>& sums);
  std::optional<std::vector<NodeId>> order_of_nodes() const;
  std::vector<NodeId> in_order() const;
  const Tiled& tiled(NodeId id) const { return tiled_[static_cast<std::size_t>(tiled_of_[id])]; }
  bool ends_tiled(NodeId id) const { return tiled(id).end == id; }
  void begin_classes();
  void classify_map(NodeId id);
  void classify();
  void count_pieces(NodeId id);
  void count_reads(NodeId id);
  void store_view(NodeId id);
  bool inside_a_kernel(const ir::LoopParts& l) const;
  bool needs_a_loop(NodeId value) const;
  bool needs_memory(NodeId id) const;
  NodeId memory_of(NodeId reader, NodeId operand) const;

  // ---- edges
  static bool of_loop(const GraphNode& x) { return x.op == Op::loop_result || x.op == Op::loop_stack; }
  /// The extents of the points that a compute node has in a region: a stack has a loop for its first axis.
  static ir::Dims elements_of(const GraphNode& x) {
    return x.op == Op::loop_stack ? x.dims.subspan(1) : x.dims;
  }
  void collect_edges();
  void walk_tiled(const Tiled& t);
  static bool reads_in_order(const GraphNode& x, std::size_t k);
  void walk(NodeId id, NodeId consumer, ir::Dims space, Shape shown, bool linear);
  void walk_loop(const ir::LoopParts& l, NodeId consumer);
  void walk_view(NodeId view, NodeId consumer);
  void add_edge(NodeId producer, NodeId consumer, ir::Dims space, const Shape& shown, bool linear);

  // ---- groups
  /// Two groups as one.
  struct Fit {
    Unifier atoms;
    Levels levels;
    bool dependent = false;  // values of rows are spread over the rows they came from
  };
  /// Whether it shows a half type as the float that a kernel computes with in any case.
  bool widens(const GraphNode& x) const {
    return x.op == Op::cast && x.dtype == DType::Float32 && is_half(g_[x.in[0]].dtype);
  }
  bool is_contraction(const Group& x) const {
    return x.tiled < 0 && ir::info(g_[x.root_node].op).kind == OpKind::Contraction;
  }
  Group& group(NodeId node) { return groups_[static_cast<std::size_t>(group_of_[node])]; }
  Group group_alone(NodeId id);
  void make_groups();
  bool join_results(NodeId id);
  void join_parts(NodeId id);
  /// Where a node reads its operands.
  AtomSet reads_at(NodeId id) {
    const Group& x = group(id);
    if (!ir::is_reduce(g_[id].op)) return place_[id];
    return x.levels.place[x.levels.apart ? 0 : x.levels.find(place_[id]) - 1];
  }
  std::span<const Run> runs_of(const Edge& e) const { return std::span(runs_).subspan(e.first_run, e.runs); }
  std::optional<Fit> fit(const Group& a, const Group& b);
  bool unify(Fit& f, const Edge& e);
  static bool go_along_same_axes(const Group& a, const Group& b);
  static bool join_levels(const Group& a, const Group& b, Fit& f);
  static bool join_in_sequence(const Levels& a, const Levels& b, Fit& f);
  static bool join_apart(const Levels& a, const Levels& b, Fit& f);
  bool try_edge(std::uint32_t id);
  bool refuse(std::uint32_t edge, Why why);
  bool try_merge(int ia, int ib, std::uint32_t edge);
  NodeId own_product(const Group& x) const;
  bool only_adds(const Group& x) const;
  bool are_sums_in_turn(const Group& a, const Group& b) const;
  bool join_between(int ia, int ib);
  Why too_much(const Group& a, const Group& b) const;
  bool is_apart(NodeId id) const { return std::ranges::find(apart_, id, &Apart::node) != apart_.end(); }
  bool has_any(const Group& x, const std::vector<NodeId>& of) const {
    return !of.empty() && std::ranges::any_of(of, [&](NodeId id) {
      return group_of_[id] == static_cast<int>(&x - groups_.data());
    });
  }
  Why kept_apart(const Group& a, const Group& b) const;
  Why needs_rows(const Group& a, const Group& b, bool dependent) const;
  Why refuse_nest(const Group& a, const Group& b, const Fit& f);
  bool has_sibling(const Group& a);
  Why refuse_slab(const Group& a, const Group& b, const Fit& f, bool siblings = false);
  bool goes_both_ways(const Group& a, const Group& b, const Fit& f);
  std::int64_t slab_bytes(const Group& a, const Group& b, std::int64_t slab, std::int64_t points) const;
  static bool runs_against(const Group& a, const Group& b) {
    return (a.forwards && b.backwards) || (a.backwards && b.forwards);
  }
  bool runs_loops_again(const Group& a, const Group& b, bool dependent) const;
  ir::Dims domain_of(const Group& x) const;
  std::string rows_of(const Group& x) const;
  std::string read_through(NodeId producer, NodeId consumer) const;
  Why why_not_in_line(const Edge& e);
  std::vector<NodeId> inputs_of(const Group& a, const Group& b) const;

  // ---- order
  enum class Search { None, Path, GaveUp };
  Search search_forward(int a, int b, std::size_t most);
  Search search_backward(int a, int b, std::size_t most);
  void find_chain();
  bool stands_before(std::size_t a, std::size_t b) const {
    return order_.place(static_cast<int>(a)) < order_.place(static_cast<int>(b));
  }
  bool path_around(int a, int b);
  void merge(int ia, int ib, const Fit& f);

  // ---- siblings
  bool reads(int b, int a) const;
  bool merge_siblings();
  bool merge_readers(NodeId x, NodeId y);

  // ---- products
  void join_products();
  bool takes_epilogue(const Group& product) const;
  bool join_product(int ia, int ib, std::uint32_t edge);
  bool join_second(int ia, int ib, std::uint32_t edge);
  bool join_pair(int ia, int ib, std::uint32_t edge);
  bool is_pair(const Group& product, const Group& other) const;
  Why no_epilogue(const Group& a, const Group& b) const;

  // ---- recomputation
  void inline_regions();
  bool cheaper_inlined(std::size_t i);
  bool reads_near(const Group& a) const;
  double memory_below(const Group& a) const;
  float cost_again(const Group& a) const;
  double time_for(const Group& b, float prims) const;
  double bytes_moved(std::initializer_list<const Group*> groups);

  // ---- result
  Region region_of(Group& group, Regions& out) const;
  Regions finish();

  // ---- state
  const Graph& g_;
  const schedule::Target& t_;
  const Fusion fusion_;
  std::vector<bool> recomputed_;
  const std::span<const Apart> apart_;  // few
  const Orders& orders_;
  std::vector<bool> transparent_, is_root_, inlined_;
  std::vector<AtomSet> place_;                           // of each node, among its group's atoms
  std::vector<Run> runs_;                                // of all edges
  std::vector<bool> written_in_place_;                   // a node whose value goes into an argument's memory
  std::vector<int> pieces_, reads_, reread_, reshapes_;  // see count_pieces, count_reads
  std::vector<int> readers_;  // operations that are no views and read a node directly
  std::vector<int> shown_;    // the same, or through views that only show a part of it
  std::vector<float> generator_cost_;
  ir::Loops loops_;
  std::vector<std::shared_ptr<const Attention>> attentions_;
  std::vector<std::shared_ptr<const PairSums>> pair_sums_;
  std::vector<Tiled> tiled_;
  std::vector<int> tiled_of_;             // by node, or -1
  std::map<NodeId, WindowView> windows_;  // by the product that reads them where they lie
  std::vector<Refusal> near_misses_;
  std::vector<Edge> edges_;
  std::vector<Group> groups_;
  Sequence order_;  // of the groups, each of which stands behind those that it reads
  std::vector<int> group_of_;
  std::vector<Why> reasons_;  // by edge
  std::vector<std::uint32_t> seen_;
  std::uint32_t stamp_ = 0;
  std::vector<int> stack_, between_;
  bool ancestors_ = false;  // what between_ has: ancestors of the second group, or descendants of the first
  std::unordered_map<NodeId, std::vector<NodeId>>
      point_readers_;  // of memory, point by point; or not found yet
};

}  // namespace kiln::plan
