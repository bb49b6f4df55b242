// Merging of regions.
//
// Every compute node begins as a region. An edge leads from a producer to a consumer through views, and knows how the
// consumer's points map onto the producer's: one to one in row-major order, as a row value spread over rows, or in
// some other way. Merges are tried by bytes saved, greatest first; one stands when the two regions' points line up,
// the merged region fits its caps and no path leads around it (region order is kept up to date as in Pearce and
// Kelly, "A dynamic topological sort algorithm for directed acyclic graphs", 2006).
//
// Terminates: each merge removes a region; each pass tries each edge once.
#include "plan/fuse.h"

#include "schedule/schedule.h"
#include "support/check.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace kiln::plan {
namespace {

using ir::GraphNode;
using ir::kNoNode;
using ir::Op;
using ir::OpKind;

constexpr float kGeneratorCost = 24;   // values made from indices alone are recomputed up to this many primitives
constexpr std::size_t kMaxEdges = 48;  // distinct inputs of a kernel
constexpr int kMaxPieces = 64;         // arrays joined by pads in one kernel: LLVM takes seconds for hundreds

enum class Relation : std::uint8_t { Same, Spread, Other };

struct Edge {
  NodeId producer, consumer;
  Relation relation;
  std::uint64_t spread = 0;  // Spread: signature of kept and repeated axes
  std::int64_t bytes = 0;
};

/// Canonical signature of a shape whose axes are kept or reduced: extents of 1 dropped, equal neighbours joined.
class Signature {
 public:
  void add(bool reduced, std::int64_t extent) {
    if (extent == 1) return;
    if (open_ && reduced == reduced_) {
      extent_ *= extent;
      return;
    }
    flush();
    open_ = true;
    reduced_ = reduced;
    extent_ = extent;
  }
  std::uint64_t value() {
    flush();
    open_ = false;
    return hash_ | 1;
  }
  bool last_reduced() const { return reduced_; }

 private:
  void flush() {
    if (open_) hash_ = (hash_ ^ static_cast<std::uint64_t>(extent_ * 2 + reduced_)) * 0x9e3779b97f4a7c15u;
    hash_ ^= hash_ >> 31;
  }
  std::uint64_t hash_ = 0x243f6a8885a308d3u;
  std::int64_t extent_ = 1;
  bool open_ = false, reduced_ = false;
};

struct Group {
  NodeId root_node;               // representative
  bool library = false;
  std::uint64_t signature = 0;    // of the axes reduced or scanned; 0: a map
  bool columns = false;           // reductions over outer axes
  bool reduces = false, scans = false, loops = false;
  bool phases = false;            // reductions that depend on others
  std::int64_t points = 0;        // of the whole domain
  std::int64_t rows = 0;          // kept points; of a map: points
  float cost = 0;
  int order = 0;
  std::vector<NodeId> nodes;
  std::vector<std::uint32_t> in_edges, out_edges;
};

class Fuser {
 public:
  Fuser(const Graph& g, const schedule::Target& t) : g_(g), t_(t) {}

  Regions run() {
    classify();
    collect_edges();
    make_groups();
    std::vector<std::uint32_t> by_bytes(edges_.size());
    std::iota(by_bytes.begin(), by_bytes.end(), 0u);
    std::stable_sort(by_bytes.begin(), by_bytes.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return edges_[a].bytes > edges_[b].bytes; });
    bool merged = true;
    for (int pass = 0; merged && pass < 3; ++pass) {
      merged = false;
      for (std::uint32_t e : by_bytes) merged |= try_edge(e);
    }
    merge_siblings();
    inline_regions();
    return finish();
  }

 private:
  // ---- nodes ------------------------------------------------------------------------------------------------------

  bool generator(NodeId id) const { return generator_cost_[id] >= 0; }
  bool transparent(NodeId id) const { return transparent_[id]; }

  /// A compute node gets a place in some region; transparent nodes (views, scalars, iotas, cheap values of indices
  /// alone) are recomputed wherever they are read.
  void classify() {
    const NodeId n = g_.size();
    loops_ = ir::find_loops(g_);
    transparent_.assign(n, true);
    is_root_.assign(n, false);
    generator_cost_.assign(n, -1.0f);
    pieces_.assign(n, 1);
    for (NodeId r : g_.roots) is_root_[r] = true;
    std::vector<bool> wanted = is_root_;  // read as memory by somebody that cannot compute it in place
    for (NodeId id = 0; id < n; ++id) {
      const GraphNode& x = g_[id];
      if (loops_.owner_of(id) != kNoNode) continue;
      switch (ir::info(x.op).kind) {
        case OpKind::Leaf: break;
        case OpKind::LoopState:
        case OpKind::LoopNext: break;
        case OpKind::Loop:
          if (loops_.of(id).parent == kNoNode && !inside_a_kernel(loops_.of(id)))
            for (NodeId state : loops_.of(id).states) wanted[g_[state].in[0]] = true;
          break;
        case OpKind::Scalar:
        case OpKind::Iota: generator_cost_[id] = 1; break;
        case OpKind::View:
        case OpKind::Cast:
        case OpKind::Elementwise: {
          float cost = ir::is_view(x.op) ? 0 : t_.cost_of(static_cast<int>(x.op));
          for (int k = 0; k < x.n_in && cost >= 0; ++k)
            cost = generator(x.in[k]) ? cost + generator_cost_[x.in[k]] : -1.0f;
          if (cost <= kGeneratorCost) generator_cost_[id] = cost;
          transparent_[id] = ir::is_view(x.op) || generator(id);
          count_pieces(id);
          break;
        }
        case OpKind::Library:
        case OpKind::Contraction:
          for (int k = 0; k < x.n_in; ++k) wanted[x.in[k]] = true;
          [[fallthrough]];
        case OpKind::LoopResult:
        case OpKind::LoopStack:
        case OpKind::Gather:
        case OpKind::Scan:
        case OpKind::Reduce: transparent_[id] = false; break;
      }
    }
    for (NodeId id = 0; id < n; ++id)
      if (wanted[id] && transparent_[id] && g_[id].op != Op::leaf && needs_memory(id)) transparent_[id] = false;
    for (NodeId r : g_.roots) {  // what a root view shows must be stored, so it is as good as a root
      if (!transparent_[r] || !ir::is_view(g_[r].op)) continue;
      const NodeId base = resolve_alias(g_, r).base;
      if (base != kNoNode && g_[base].op != Op::leaf) is_root_[base] = true;
    }
  }

  /// What a view shows through pads, each an index map, a predicate and a load. Beyond a number of them what a pad places,
  /// or else what it places that on, is stored before.
  void count_pieces(NodeId id) {
    const GraphNode& x = g_[id];
    if (!ir::is_view(x.op)) return;
    const auto sum = [&] {
      int all = 0;
      for (int k = 0; k < x.n_in; ++k) all += pieces_[x.in[k]];
      return all;
    };
    for (int k = 0; k < x.n_in && sum() > kMaxPieces; ++k)
      if (pieces_[x.in[k]] > 1) transparent_[x.in[k]] = false, pieces_[x.in[k]] = 1;
    pieces_[id] = sum();
  }

  /// Whether each element's states depend on that element alone, so that a loop can run inside a kernel. The condition
  /// must be known before the body, and the code must not be long.
  bool inside_a_kernel(const ir::LoopParts& l) const {
    float cost = 0;
    std::vector<NodeId> placeless;  // what depends on states of one element only has the same states at every point
    for (NodeId id : l.body) {
      const GraphNode& x = g_[id];
      const bool anywhere = x.op == Op::loop_state ? x.numel == 1 : std::all_of(x.in, x.in + x.n_in, [&](NodeId in) {
        return loops_.owner_of(in) == kNoNode || std::binary_search(placeless.begin(), placeless.end(), in);
      });
      if (anywhere) placeless.push_back(id);
      cost += t_.cost_of(static_cast<int>(x.op));
      switch (ir::info(x.op).kind) {
        case OpKind::Elementwise:
        case OpKind::Cast:
        case OpKind::LoopState:
        case OpKind::LoopNext:
        case OpKind::LoopResult: break;
        case OpKind::Loop:
          if (needs_a_loop(x.in[1])) return false;
          break;
        case OpKind::View:
          if (x.op != Op::broadcast && !anywhere) return false;
          break;
        case OpKind::Gather:
          if (loops_.owner_of(x.in[0]) != kNoNode) return false;
          break;
        default: return false;
      }
    }
    return cost <= static_cast<float>(t_.max_prims) && !needs_a_loop(l.condition);
  }

  /// Whether a value inside a loop is made of another loop's result.
  bool needs_a_loop(NodeId value) const {
    std::vector<NodeId> stack{value};
    std::vector<bool> seen(value + 1);
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      if (seen[id] || loops_.owner_of(id) == kNoNode || g_[id].op == Op::loop_state) continue;
      seen[id] = true;
      if (g_[id].op == Op::loop_result) return true;
      for (int k = 0; k < g_[id].n_in; ++k) stack.push_back(g_[id].in[k]);
    }
    return false;
  }

  /// A transparent node that somebody reads as memory and that no existing memory shows.
  bool needs_memory(NodeId id) const {
    if (!ir::is_view(g_[id].op)) return true;
    const Alias a = resolve_alias(g_, id);
    return a.base == kNoNode || (g_[a.base].op != Op::leaf && transparent_[a.base] && !is_root_[a.base]);
  }

  // ---- edges ------------------------------------------------------------------------------------------------------

  void collect_edges() {
    for (NodeId c = 0; c < g_.size(); ++c) {
      if (transparent_[c]) continue;
      const GraphNode& x = g_[c];
      if (of_loop(x)) {
        walk_loop(loops_.of_result(g_, c), c);
        continue;
      }
      if (ir::is_view(x.op)) {
        walk_view(c, c);
        continue;
      }
      for (int k = 0; k < x.n_in; ++k) {
        const ir::Dims space = ir::is_reduce(x.op) ? g_[x.in[k]].dims : x.dims;
        walk(x.in[k], c, space, Shape(g_[x.in[k]].dims), reads_in_order(x, k));
      }
    }
  }

  /// Whether a compute node reads operand k point by point, the points known before any value is.
  static bool reads_in_order(const GraphNode& x, int k) {
    const OpKind kind = ir::info(x.op).kind;
    return !ir::is_library(x.op) && !(kind == OpKind::Gather && k == 0);
  }

  /// Finds the producers below `id`, whose points are (while `linear`) those of `shown`, which broadcasts to `space`.
  void walk(NodeId id, NodeId consumer, ir::Dims space, Shape shown, bool linear) {
    if (!transparent_[id]) {
      add_edge(id, consumer, space, shown, linear);
      return;
    }
    const GraphNode& x = g_[id];
    switch (ir::info(x.op).kind) {
      case OpKind::Leaf:
      case OpKind::Scalar:
      case OpKind::Iota:
        if (x.op == Op::leaf) add_edge(id, consumer, space, shown, linear);
        return;
      case OpKind::View:
        if (x.op == Op::reshape) return walk(x.in[0], consumer, space, shown, linear);
        if (x.op == Op::broadcast) {
          const GraphNode& in = g_[x.in[0]];
          if (linear && std::equal(x.dims.begin(), x.dims.end(), shown.begin(), shown.end()))
            return walk(x.in[0], consumer, space, Shape(in.dims), true);
          return walk(x.in[0], consumer, space, shown, linear && in.numel == x.numel);
        }
        for (int k = 0; k < x.n_in; ++k) walk(x.in[k], consumer, space, shown, false);
        return;
      default:
        for (int k = 0; k < x.n_in; ++k) {
          const GraphNode& in = g_[x.in[k]];
          const bool same = std::equal(in.dims.begin(), in.dims.end(), x.dims.begin(), x.dims.end());
          walk(x.in[k], consumer, space, shown, linear && same);
        }
    }
  }

  /// Everything that a loop reads from outside.
  void walk_loop(const ir::LoopParts& l, NodeId consumer) {
    std::vector<NodeId> found;
    auto read = [&](NodeId in, bool in_order) {
      if (loops_.owner_of(in) != kNoNode || ir::info(g_[in].op).kind == OpKind::LoopNext) return;
      if (std::find(found.begin(), found.end(), in) != found.end()) return;
      found.push_back(in);
      walk(in, consumer, elements_of(g_[consumer]), Shape(g_[in].dims), in_order);
    };
    auto read_all = [&](const GraphNode& x) {
      for (int k = 0; k < x.n_in; ++k) read(x.in[k], reads_in_order(x, k));
    };
    for (NodeId id : l.body) read_all(g_[id]);
    read_all(g_[l.node]);
    for (const auto* made : {&l.nexts, &l.yields})
      for (NodeId id : *made) read(id, true);
  }

  static bool of_loop(const GraphNode& x) { return x.op == Op::loop_result || x.op == Op::loop_stack; }

  /// The extents of the points that a compute node has in a region: a stack has a loop for its first axis.
  static ir::Dims elements_of(const GraphNode& x) { return x.op == Op::loop_stack ? x.dims.subspan(1) : x.dims; }

  void walk_view(NodeId view, NodeId consumer) {
    transparent_[view] = true;
    walk(view, consumer, g_[view].dims, Shape(g_[view].dims), true);
    transparent_[view] = false;
  }

  void add_edge(NodeId producer, NodeId consumer, ir::Dims space, const Shape& shown, bool linear) {
    Edge e{producer, consumer, Relation::Other};
    e.bytes = g_[producer].numel * size_of(g_[producer].dtype);
    if (linear && g_[producer].op != Op::loop_stack) {  // whose loop ends before anybody reads it
      std::int64_t n = 1;
      for (std::int64_t d : space) n *= d;
      if (shown.numel() == n) {
        e.relation = Relation::Same;
      } else if (shown.rank() <= static_cast<int>(space.size())) {
        e.relation = Relation::Spread;
        Signature s;
        const std::size_t skip = space.size() - static_cast<std::size_t>(shown.rank());
        for (std::size_t a = 0; a < space.size(); ++a)
          s.add(a < skip || shown[static_cast<int>(a - skip)] == 1, space[a]);
        e.spread = s.value();
      }
    }
    edges_.push_back(e);
  }

  // ---- groups -----------------------------------------------------------------------------------------------------

  void make_groups() {
    group_of_.assign(g_.size(), -1);
    row_.assign(g_.size(), false);
    for (NodeId id = 0; id < g_.size(); ++id) {
      if (transparent_[id]) continue;
      const GraphNode& x = g_[id];
      if (of_loop(x) && join_results(id)) continue;
      Group group;
      group.root_node = id;
      group.order = static_cast<int>(id);
      group.nodes = {id};
      group.cost = widens(x) ? 0.0f : std::max(1.0f, t_.cost_of(static_cast<int>(x.op)));
      group.library = ir::is_library(x.op);
      group.points = group.rows = x.numel;
      if (ir::is_reduce(x.op)) {
        const ir::Dims in = g_[x.in[0]].dims;
        Signature s;
        for (std::size_t a = 0; a < in.size(); ++a) s.add((x.attr64 >> a) & 1, in[a]);
        group.columns = !s.last_reduced();
        group.signature = s.value();
        group.points = g_[x.in[0]].numel;
        group.reduces = true;
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
        const std::size_t axis = ir::scan_axis(x.attr64);
        for (std::size_t a = 0; a < x.dims.size(); ++a) s.add(a == axis, x.dims[a]);
        group.columns = !s.last_reduced();
        group.signature = s.value();
        group.rows = x.numel / std::max<std::int64_t>(x.dims[axis], 1);
        group.scans = true;
      }
      group_of_[id] = static_cast<int>(groups_.size());
      groups_.push_back(std::move(group));
    }
    for (std::uint32_t e = 0; e < edges_.size(); ++e) {
      groups_[static_cast<std::size_t>(group_of_[edges_[e].consumer])].in_edges.push_back(e);
      if (group_of_[edges_[e].producer] >= 0)
        groups_[static_cast<std::size_t>(group_of_[edges_[e].producer])].out_edges.push_back(e);
    }
  }

  /// Whether it shows a half type as the float that a kernel computes with in any case.
  bool widens(const GraphNode& x) const { return x.op == Op::cast && x.dtype == DType::Float32 && is_half(g_[x.in[0]].dtype); }
  bool is_contraction(const Group& x) const { return ir::info(g_[x.root_node].op).kind == OpKind::Contraction; }

  /// Puts a result of a loop beside an earlier one, if both come from one run of the loop.
  bool join_results(NodeId id) {
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

  Group& group(NodeId node) { return groups_[static_cast<std::size_t>(group_of_[node])]; }

  struct Fit {
    bool ok = false;
    bool producer_rows = false;  // the producer's nodes become row nodes
    bool consumer_rows = false;  // the consumer's nodes become row nodes
    bool dependent = false;      // values of rows are spread over the rows they came from
    std::string reason;
  };

  /// Whether every edge between a and b lines up under one assignment of full and row nodes.
  Fit fit(const Group& a, const Group& b) {
    Fit best;
    best.reason = "their points do not line up";
    for (const auto& [pr, cr] : {std::pair{false, false}, std::pair{false, true}, std::pair{true, false}}) {
      if (cr && (b.signature || !a.signature || b.points != a.rows)) continue;
      if (pr && (a.signature || !b.signature || a.points != b.rows)) continue;
      if (!pr && !cr) {
        if (a.signature && b.signature && a.signature != b.signature) continue;
        if (a.points != b.points) continue;
      }
      const std::uint64_t signature = a.signature ? a.signature : b.signature;
      bool ok = true, dependent = false;
      for (std::uint32_t id : a.out_edges) {
        const Edge& e = edges_[id];
        if (&group(e.consumer) != &b) continue;
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
      if (ok) return {true, pr, cr, dependent, {}};
    }
    return best;
  }

  bool try_edge(std::uint32_t id) {
    const Edge& e = edges_[id];
    if (group_of_[e.producer] < 0) return false;
    const int a = group_of_[e.producer], b = group_of_[e.consumer];
    if (a == b) return false;
    return try_merge(a, b, id);
  }

  bool refuse(std::uint32_t edge, std::string reason) {
    if (reasons_.size() <= edge) reasons_.resize(edges_.size());
    reasons_[edge] = std::move(reason);
    return false;
  }

  bool try_merge(int ia, int ib, std::uint32_t edge) {
    Group &a = groups_[static_cast<std::size_t>(ia)], &b = groups_[static_cast<std::size_t>(ib)];
    if (a.library || b.library)
      return refuse(edge, a.loops || b.loops                       ? "a loop over whole tensors runs its own kernels"
                          : is_contraction(a) || is_contraction(b) ? "contractions run as library calls"
                                                                   : "sorts and searches run as library calls");
    if (a.points == 0 || b.points == 0) return refuse(edge, "no elements");
    if (a.cost + b.cost > static_cast<float>(t_.max_prims))
      return refuse(edge, cat("together ", a.cost + b.cost, " primitives, above the cap of ", t_.max_prims));
    if (a.in_edges.size() + b.in_edges.size() > kMaxEdges * 4 && inputs_of(a, b) > kMaxEdges)
      return refuse(edge, cat("more than ", kMaxEdges, " inputs"));
    const Fit f = fit(a, b);
    if (!f.ok) return refuse(edge, f.reason);
    if (runs_loops_again(a, b, f.dependent)) return refuse(edge, "a loop would run once for each phase of the other's rows");
    if (std::string why = needs_rows(a, b, f.dependent); !why.empty()) return refuse(edge, std::move(why));
    if (path_around(ia, ib)) return refuse(edge, "another kernel lies between them");
    merge(ia, ib, f);
    return true;
  }

  /// Where each row would be one thread's from its start to its end: because reductions depend on each other, or a scan
  /// on another one or on a reduction. Says why there are too few rows for that, or nothing.
  std::string needs_rows(const Group& a, const Group& b, bool dependent) const {
    if (t_.strict && (a.scans || b.scans) && (a.reduces || b.reduces)) return "scans and reductions combine in orders of their own (strict)";
    if (!dependent && !(a.scans && (b.scans || b.reduces)) && !(b.scans && a.reduces)) return {};
    const Group& r = a.signature ? a : b;
    return schedule::refuse_norm(r.rows, r.points / std::max<std::int64_t>(r.rows, 1), r.columns, t_);
  }

  /// Whether a GPU would run a loop in each phase: it keeps no values that loops make, and scans make steps of their own.
  bool runs_loops_again(const Group& a, const Group& b, bool dependent) const {
    if (!t_.gpu || !(a.loops || b.loops)) return false;
    return dependent || a.phases || b.phases || a.scans || b.scans;
  }

  std::size_t inputs_of(const Group& a, const Group& b) {
    std::vector<NodeId> in;
    for (const Group* x : {&a, &b})
      for (std::uint32_t e : x->in_edges) {
        const int p = group_of_[edges_[e].producer];
        if (p >= 0 && (&groups_[static_cast<std::size_t>(p)] == &a || &groups_[static_cast<std::size_t>(p)] == &b)) continue;
        in.push_back(edges_[e].producer);
      }
    std::sort(in.begin(), in.end());
    return static_cast<std::size_t>(std::unique(in.begin(), in.end()) - in.begin());
  }

  // ---- order --------------------------------------------------------------------------------------------------------

  /// Groups reachable from a (by out_edges) whose order is below that of `limit`; a itself excluded.
  void forward(int a, int limit, std::vector<int>& found) {
    ++stamp_;
    seen_.resize(groups_.size(), 0);
    std::vector<int>& stack = stack_;
    stack.assign(1, a);
    seen_[static_cast<std::size_t>(a)] = stamp_;
    while (!stack.empty()) {
      const int at = stack.back();
      stack.pop_back();
      for (std::uint32_t e : groups_[static_cast<std::size_t>(at)].out_edges) {
        const int to = group_of_[edges_[e].consumer];
        auto& mark = seen_[static_cast<std::size_t>(to)];
        if (mark == stamp_ || groups_[static_cast<std::size_t>(to)].order >= limit) continue;
        mark = stamp_;
        found.push_back(to);
        stack.push_back(to);
      }
    }
  }

  /// Whether a path from a to b leads through a third group. Leaves the descendants of a that lie before b in
  /// between_.
  bool path_around(int a, int b) {
    between_.clear();
    const int limit = groups_[static_cast<std::size_t>(b)].order;
    forward(a, limit, between_);
    for (int x : between_)
      for (std::uint32_t e : groups_[static_cast<std::size_t>(x)].out_edges)
        if (group_of_[edges_[e].consumer] == b) return true;
    return false;
  }

  /// b joins a's group. Descendants of a that stood before b (between_) now stand after the merged group, in their
  /// order.
  void merge(int ia, int ib, const Fit& f) {
    Group &a = groups_[static_cast<std::size_t>(ia)], &b = groups_[static_cast<std::size_t>(ib)];
    if (f.consumer_rows)
      for (NodeId n : b.nodes) row_[n] = true;
    if (f.producer_rows)
      for (NodeId n : a.nodes) row_[n] = true;
    const int b_order = b.order;
    if (!a.signature && b.signature) {
      a.signature = b.signature;
      a.columns = b.columns;
      a.points = b.points;
      a.rows = b.rows;
    }
    a.cost += b.cost;
    a.reduces |= b.reduces;
    a.scans |= b.scans;
    a.loops |= b.loops;
    a.phases |= b.phases || f.dependent;
    // The larger group keeps its index.
    int keep = ia, gone = ib;
    if (b.nodes.size() > a.nodes.size()) {
      std::swap(keep, gone);
      std::swap(a.signature, b.signature), std::swap(a.columns, b.columns), std::swap(a.points, b.points);
      std::swap(a.rows, b.rows), std::swap(a.cost, b.cost), std::swap(a.order, b.order);
      std::swap(a.reduces, b.reduces), std::swap(a.scans, b.scans), std::swap(a.loops, b.loops);
      std::swap(a.phases, b.phases);
    }
    Group &k = groups_[static_cast<std::size_t>(keep)], &x = groups_[static_cast<std::size_t>(gone)];
    for (NodeId n : x.nodes) group_of_[n] = keep;
    auto splice = [](auto& to, auto& from) {
      to.insert(to.end(), from.begin(), from.end());
      from.clear();
      from.shrink_to_fit();
    };
    splice(k.nodes, x.nodes);
    splice(k.in_edges, x.in_edges);
    splice(k.out_edges, x.out_edges);
    if (between_.empty()) {
      k.order = b_order;
      return;
    }
    std::sort(between_.begin(), between_.end(), [&](int l, int r) {
      return groups_[static_cast<std::size_t>(l)].order < groups_[static_cast<std::size_t>(r)].order;
    });
    // The merged group takes b's position, after all of b's ancestors; what descends from a moves right behind it.
    renumber_after(b_order, static_cast<int>(between_.size()) + 1);
    k.order = b_order;
    int next = b_order;
    for (int d : between_) groups_[static_cast<std::size_t>(d)].order = ++next;
  }

  /// Makes room for n positions after `order`.
  void renumber_after(int order, int n) {
    for (Group& g : groups_)
      if (g.order > order) g.order += n;
  }

  // ---- siblings ---------------------------------------------------------------------------------------------------

  bool reaches(int a, int b) {
    if (groups_[static_cast<std::size_t>(a)].order > groups_[static_cast<std::size_t>(b)].order) return false;
    std::vector<int> found;
    forward(a, groups_[static_cast<std::size_t>(b)].order + 1, found);
    return std::find(found.begin(), found.end(), b) != found.end();
  }

  /// Regions that read the same memory point by point become one.
  void merge_siblings() {
    std::vector<std::uint32_t> by_producer(edges_.size());
    std::iota(by_producer.begin(), by_producer.end(), 0u);
    std::stable_sort(by_producer.begin(), by_producer.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return edges_[a].producer < edges_[b].producer; });
    for (std::size_t i = 0; i + 1 < by_producer.size(); ++i) {
      const Edge &x = edges_[by_producer[i]], &y = edges_[by_producer[i + 1]];
      if (x.producer != y.producer || x.relation != Relation::Same || y.relation != Relation::Same) continue;
      int a = group_of_[x.consumer], b = group_of_[y.consumer];
      if (a == b) continue;
      if (groups_[static_cast<std::size_t>(a)].order > groups_[static_cast<std::size_t>(b)].order) std::swap(a, b);
      const Group &ga = groups_[static_cast<std::size_t>(a)], &gb = groups_[static_cast<std::size_t>(b)];
      if (ga.points != gb.points || ga.points == 0 || ga.library || gb.library) continue;
      if (row_[x.consumer] != ir::is_reduce(g_[x.consumer].op) || row_[y.consumer] != ir::is_reduce(g_[y.consumer].op)) continue;
      if (ga.signature && gb.signature && ga.signature != gb.signature) continue;
      if (runs_loops_again(ga, gb, false)) continue;
      if (ga.cost + gb.cost > static_cast<float>(t_.max_prims) || inputs_of(ga, gb) > kMaxEdges) continue;
      if (!needs_rows(ga, gb, false).empty() || reaches(a, b)) continue;
      between_.clear();
      forward(a, gb.order, between_);
      merge(a, b, {true, false, false, false, {}});
    }
  }

  // ---- recomputation ------------------------------------------------------------------------------------------------

  /// Maps whose every reader takes them at other points (stencils, broadcasts) are recomputed there when the model
  /// says that this takes less time than writing and reading them.
  void inline_regions() {
    inlined_.assign(groups_.size(), false);
    std::vector<std::size_t> order(groups_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return groups_[a].order < groups_[b].order; });
    for (std::size_t i : order) {
      inlined_[i] = cheaper_inlined(i);
      if (!inlined_[i]) continue;
      // Producers come first, so a reader that is inlined itself carries this cost along: no blow-up in a long chain.
      for (std::uint32_t e : groups_[i].out_edges)
        if (const int to = group_of_[edges_[e].consumer]; to != static_cast<int>(i))
          groups_[static_cast<std::size_t>(to)].cost += groups_[i].cost;
    }
  }

  bool cheaper_inlined(std::size_t i) {
    const Group& a = groups_[i];
    if (a.nodes.empty() || a.signature || a.loops || a.library || a.points == 0) return false;
    double input_bytes = 0, bytes = 0;
    int reads = 0;
    std::map<std::size_t, int> readers;  // and how often each reads it
    for (NodeId n : a.nodes)
      if (is_root_[n]) return false;
    for (std::uint32_t e : a.in_edges)
      if (group_of_[edges_[e].producer] != static_cast<int>(i)) input_bytes += static_cast<double>(edges_[e].bytes);
    for (std::uint32_t e : a.out_edges) {
      const auto to = static_cast<std::size_t>(group_of_[edges_[e].consumer]);
      if (to == i) continue;
      const Group& b = groups_[to];
      ++reads;
      ++readers[to];
      if (b.library || b.cost + a.cost * static_cast<float>(reads) > static_cast<float>(t_.max_prims)) return false;
      bytes = static_cast<double>(edges_[e].bytes);
    }
    const double points = static_cast<double>(a.points);
    const double apart = t_.launch_ns + a.cost * points / t_.prims_per_ns + (1 + reads) * t_.traffic_ns(bytes) +
                         t_.traffic_ns(input_bytes);
    double inside = reads * t_.traffic_ns(input_bytes);
    for (const auto& [reader, times] : readers) inside += time_for(groups_[reader], a.cost * static_cast<float>(times));
    return inside < apart;
  }

  /// What so many primitives more a point add to a region's time: nothing while it waits for memory.
  double time_for(const Group& b, float prims) const {
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

  // ---- result -------------------------------------------------------------------------------------------------------

  Regions finish() {
    Regions out;
    out.stored.assign(g_.size(), false);
    out.loops = std::move(loops_);
    for (NodeId id = 0; id < g_.size(); ++id)
      if (g_[id].op == Op::leaf) out.stored[id] = true;
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
      const auto a = static_cast<std::size_t>(group_of_[e.producer]), b = static_cast<std::size_t>(group_of_[e.consumer]);
      if (a == b) continue;
      store(e.producer);
      if (!inlined_[a] && i < reasons_.size() && !reasons_[i].empty())
        out.refusals.push_back({e.producer, e.consumer, reasons_[i]});
    }
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < groups_.size(); ++i)
      if (!groups_[i].nodes.empty() && !inlined_[i]) order.push_back(i);
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return groups_[a].order < groups_[b].order; });
    for (std::size_t i : order) {
      Group& x = groups_[i];
      Region r;
      if (x.library) r.kind = x.loops ? Region::Kind::Loop : Region::Kind::Library;
      r.nodes = std::move(x.nodes);
      std::sort(r.nodes.begin(), r.nodes.end());
      for (NodeId n : r.nodes) {
        if (out.stored[n]) r.outputs.push_back(n);
        if (row_[n]) r.rows.push_back(n);
      }
      if (!r.outputs.empty()) out.regions.push_back(std::move(r));
    }
    return out;
  }

  const Graph& g_;
  const schedule::Target& t_;
  std::vector<bool> transparent_, is_root_, row_, inlined_;
  std::vector<int> pieces_;
  std::vector<float> generator_cost_;
  ir::Loops loops_;
  std::vector<Edge> edges_;
  std::vector<Group> groups_;
  std::vector<int> group_of_;
  std::vector<std::string> reasons_;
  std::vector<std::uint32_t> seen_;
  std::uint32_t stamp_ = 0;
  std::vector<int> stack_, between_;
};

}  // namespace

Regions fuse(const Graph& graph, const schedule::Target& target) { return Fuser(graph, target).run(); }

}  // namespace kiln::plan
