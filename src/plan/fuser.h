// The state of merging, for the files that implement it: fuse.cpp (the passes and the result, recomputation),
// fuse_edges.cpp (which nodes compute, and who reads whom), fuse_groups.cpp (what may merge), fuse_order.cpp
// (the order of regions, kept while they merge), fuse_products.cpp (what a matrix product takes along).
#pragma once

#include "plan/attention.h"
#include "plan/fuse.h"
#include "plan/sequence.h"
#include "schedule/schedule.h"

#include <string>
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
  std::uint64_t spread = 0;  // Spread: signature of kept and repeated axes
  std::int64_t bytes = 0;
};

/// Canonical signature of a shape whose axes are kept or reduced: extents of 1 dropped, equal neighbours
/// joined.
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
  NodeId root_node;  // representative
  bool library = false;
  int attention = -1;           // an attention: index
  std::uint64_t signature = 0;  // of the axes reduced or scanned; 0: a map
  bool columns = false;         // reductions over outer axes
  bool reduces = false, scans = false, loops = false;
  bool phases = false;                       // reductions that depend on others
  bool forwards = false, backwards = false;  // what must meet the elements of a row in this order
  std::int64_t points = 0;                   // of the whole domain
  std::int64_t rows = 0;                     // kept points; of a map: points
  float cost = 0;
  int reductions = 0;  // and scans: each may begin a phase
  int stored = 0;      // results that somebody holds
  int pieces = 0;      // what its nodes see through pads
  std::vector<NodeId> nodes;
  std::vector<std::uint32_t> in_edges, out_edges;
};

/// Stands for a reason that is worded when all regions are there (why_not_in_line).
inline constexpr std::string_view kNotInLine = "-";

class Fuser {
 public:
  Fuser(const Graph& g, const schedule::Target& t, Fusion fusion) : g_(g), t_(t), fusion_(fusion) {}
  Regions run();

 private:
  void merge_along_edges();

  // ---- nodes
  bool generator(NodeId id) const { return generator_cost_[id] >= 0; }
  bool transparent(NodeId id) const { return transparent_[id]; }
  void find_attentions();
  void classify();
  void count_pieces(NodeId id);
  void count_reads(NodeId id);
  void store_view(NodeId id);
  bool inside_a_kernel(const ir::LoopParts& l) const;
  bool needs_a_loop(NodeId value) const;
  bool needs_memory(NodeId id) const;

  // ---- edges
  static bool of_loop(const GraphNode& x) { return x.op == Op::loop_result || x.op == Op::loop_stack; }
  /// The extents of the points that a compute node has in a region: a stack has a loop for its first axis.
  static ir::Dims elements_of(const GraphNode& x) {
    return x.op == Op::loop_stack ? x.dims.subspan(1) : x.dims;
  }
  void collect_edges();
  void walk_attention(const Attention& a);
  static bool reads_in_order(const GraphNode& x, int k);
  void walk(NodeId id, NodeId consumer, ir::Dims space, Shape shown, bool linear);
  void walk_loop(const ir::LoopParts& l, NodeId consumer);
  void walk_view(NodeId view, NodeId consumer);
  void add_edge(NodeId producer, NodeId consumer, ir::Dims space, const Shape& shown, bool linear);

  // ---- groups
  struct Fit {
    bool ok = false;
    bool producer_rows = false;  // the producer's nodes become row nodes
    bool consumer_rows = false;  // the consumer's nodes become row nodes
    bool dependent = false;      // values of rows are spread over the rows they came from
  };
  /// Whether it shows a half type as the float that a kernel computes with in any case.
  bool widens(const GraphNode& x) const {
    return x.op == Op::cast && x.dtype == DType::Float32 && is_half(g_[x.in[0]].dtype);
  }
  bool is_contraction(const Group& x) const {
    return x.attention < 0 && ir::info(g_[x.root_node].op).kind == OpKind::Contraction;
  }
  Group& group(NodeId node) { return groups_[static_cast<std::size_t>(group_of_[node])]; }
  void make_groups();
  bool ends_attention(NodeId id) const {
    return attentions_[static_cast<std::size_t>(attention_of_[id])]->product == id;
  }
  bool join_results(NodeId id);
  Fit fit(const Group& a, const Group& b);
  bool try_edge(std::uint32_t id);
  bool refuse(std::uint32_t edge, std::string reason);
  bool try_merge(int ia, int ib, std::uint32_t edge);
  std::string too_much(const Group& a, const Group& b) const;
  std::string needs_rows(const Group& a, const Group& b, bool dependent) const;
  static bool runs_against(const Group& a, const Group& b) {
    return (a.forwards && b.backwards) || (a.backwards && b.forwards);
  }
  bool runs_loops_again(const Group& a, const Group& b, bool dependent) const;
  ir::Dims domain_of(const Group& x) const;
  std::string rows_of(const Group& x) const;
  std::string read_through(NodeId producer, NodeId consumer) const;
  std::string why_not_in_line(const Edge& e);
  std::size_t inputs_of(const Group& a, const Group& b) const;

  // ---- order
  void forward(int a, std::int64_t limit, std::vector<int>& found);
  bool stands_before(std::size_t a, std::size_t b) const {
    return order_.place(static_cast<int>(a)) < order_.place(static_cast<int>(b));
  }
  bool path_around(int a, int b);
  void merge(int ia, int ib, const Fit& f);

  // ---- siblings
  bool reaches(int a, int b);
  void merge_siblings();

  // ---- products
  void join_products();
  bool takes_epilogue(const Group& product) const;
  bool join_product(int ia, int ib, std::uint32_t edge);
  std::string no_epilogue(const Group& a, const Group& b) const;

  // ---- recomputation
  void inline_regions();
  bool cheaper_inlined(std::size_t i);
  double time_for(const Group& b, float prims) const;

  // ---- result
  Regions finish();

  // ---- state
  const Graph& g_;
  const schedule::Target& t_;
  const Fusion fusion_;
  std::vector<bool> transparent_, is_root_, row_, inlined_;
  std::vector<bool> written_in_place_;                   // a node whose value goes into an argument's memory
  std::vector<int> pieces_, reads_, reread_, reshapes_;  // see count_pieces, count_reads
  std::vector<int> readers_;  // operations that are no views and read a node directly
  std::vector<float> generator_cost_;
  ir::Loops loops_;
  std::vector<std::shared_ptr<const Attention>> attentions_;
  std::vector<int> attention_of_;  // by node, or -1
  std::vector<Refusal> near_misses_;
  std::vector<Edge> edges_;
  std::vector<Group> groups_;
  Sequence order_;  // of the groups, each of which stands behind those that it reads
  std::vector<int> group_of_;
  std::vector<std::string> reasons_;
  std::vector<std::uint32_t> seen_;
  std::uint32_t stamp_ = 0;
  std::vector<int> stack_, between_;
};

}  // namespace kiln::plan
