// Terminates: one walk in topological order; a reduction becomes two over fewer axes each, and two casts.
//
// Only reductions that do not depend on each other share: those with as many reductions before them.
#include "transform/share_reductions.h"

#include "ir/builder.h"
#include "transform/nouns.h"
#include "transform/rebuild.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

namespace kiln::transform {
namespace {

constexpr std::int64_t kLeastCombined = 4;  // elements of one by the shared reduction: few are left
constexpr std::size_t kMostNodes = 64;      // looked at below a reduction
constexpr std::size_t kMostShared = 8;      // reductions of a kernel

class Sharer {
 public:
  Sharer(Graph& graph, double launch_bytes, std::int64_t held)
      : g_(graph), launch_bytes_(launch_bytes), held_(held), add_(graph) {}

  Renumbering run() {
    first_.assign(g_.size(), 0);
    find_levels();
    find_spread();
    for (NodeId id = 0; id < g_.size(); ++id)
      if (is_shared(id)) join(id);
    for (const Group& group : groups_) {
      if (!pays(group)) continue;
      for (const NodeId id : group.reductions)
        if (axes_of(id) != group.axes) first_[id] = group.axes;
    }
    return rebuild(
        g_, [&](NodeId id, const GraphNode& n) { return first_[id] ? split(n, first_[id]) : add_.push(n); });
  }

 private:
  /// Reductions that read the same memory, and the axes that all of them reduce.
  struct Group {
    std::vector<NodeId> reductions, memory;
    std::uint64_t axes;
    int level;
  };

  std::uint64_t axes_of(NodeId id) const {
    const ir::Dims dims = g_[g_[id].in[0]].dims;
    std::uint64_t axes = 0;
    for (std::size_t a = 0; a < dims.size(); ++a)
      if (dims[a] != 1 && ir::attributes<ir::Reduce>(g_[id]).over(a)) axes |= std::uint64_t{1} << a;
    return axes;
  }

  static std::int64_t extent(ir::Dims dims, std::uint64_t axes) {
    std::int64_t n = 1;
    for (std::size_t a = 0; a < dims.size(); ++a)
      if (axes >> a & 1) n *= dims[a];
    return n;
  }

  /// A position would need its value beside it. What is spread over the elements again would share a kernel
  /// with what is made of it, which gains nothing where a row is so long that its elements come from memory
  /// again.
  bool is_shared(NodeId id) const {
    const GraphNode& n = g_[id];
    if (!ir::is_reduce(n.op) || ir::has(n.op, ir::POSITION) || n.numel == 0) return false;
    const std::int64_t elements = g_[n.in[0]].numel;
    return spread_[id] < elements || elements / n.numel > held_;
  }

  /// The most elements of what is made of each node.
  void find_spread() {
    spread_.assign(g_.size(), 0);
    for (NodeId id = g_.size(); id-- > 0;)
      for (const NodeId in : g_[id].in) spread_[in] = std::max({spread_[in], g_[id].numel, spread_[id]});
  }

  /// Reductions that lie before each node, one behind the other.
  void find_levels() {
    level_.assign(g_.size(), 0);
    for (NodeId id = 0; id < g_.size(); ++id)
      for (const NodeId in : g_[id].in)
        level_[id] = std::max(level_[id], level_[in] + ir::is_reduce(g_[in].op));
  }

  /// What a reduction's operand is made of point by point.
  std::vector<NodeId> memory_of(NodeId id) const {
    std::vector<NodeId> found, seen{g_[id].in[0]};
    for (std::size_t i = 0; i < seen.size() && seen.size() < kMostNodes; ++i) {
      const GraphNode& n = g_[seen[i]];
      const ir::OpKind kind = ir::info(n.op).kind;
      if (kind != ir::OpKind::Cast && kind != ir::OpKind::Elementwise) {
        if (n.op != Op::broadcast) found.push_back(seen[i]);
        continue;
      }
      for (const NodeId in : n.in)
        if (std::ranges::equal(g_[in].dims, n.dims) && std::ranges::find(seen, in) == seen.end())
          seen.push_back(in);
    }
    return found;
  }

  /// Puts a reduction with the first others that it shares memory and enough of its axes with.
  void join(NodeId id) {
    const std::vector<NodeId> memory = memory_of(id);
    const ir::Dims dims = g_[g_[id].in[0]].dims;
    for (Group& group : groups_) {
      const std::uint64_t axes = group.axes & axes_of(id);
      std::vector<NodeId> common;
      std::ranges::copy_if(memory, std::back_inserter(common), [&](NodeId m) {
        return std::ranges::find(group.memory, m) != group.memory.end();
      });
      if (common.empty() || group.level != level_[id] || group.reductions.size() == kMostShared ||
          !std::ranges::equal(g_[g_[group.reductions.front()].in[0]].dims, dims) ||
          extent(dims, axes) < kLeastCombined)
        continue;
      group.reductions.push_back(id);
      group.memory = std::move(common);
      group.axes = axes;
      return;
    }
    if (!memory.empty()) groups_.push_back({{id}, memory, axes_of(id), level_[id]});
  }

  /// Whether the reading that is saved is more than what goes through memory instead.
  bool pays(const Group& group) const {
    double saved = 0, moved = 0;
    std::vector<std::uint64_t> others;  // each would be a kernel
    for (const NodeId id : group.reductions)
      if (std::ranges::find(others, axes_of(id)) == others.end()) others.push_back(axes_of(id));
    for (const NodeId m : group.memory)
      saved +=
          static_cast<double>(g_[m].numel * size_of(g_[m].dtype)) * static_cast<double>(others.size() - 1);
    for (const NodeId id : group.reductions) {
      const GraphNode& in = g_[g_[id].in[0]];
      if (axes_of(id) == group.axes) continue;
      moved += 2.0 * static_cast<double>(in.numel / extent(in.dims, group.axes) *
                                         size_of(part_type(g_[id], in.dtype)));
    }
    return others.size() > 1 && saved > moved + launch_bytes_;
  }

  /// Sums of halves are kept in what they are added up in; a greatest element is one of the elements.
  static DType part_type(const GraphNode& n, DType of) {
    return is_half(of) && !ir::chooses(ir::info(n.op).fold) ? DType::Float32 : of;
  }

  NodeId cast(NodeId x, DType dtype) {
    return g_[x].dtype == dtype ? x : add_.add(Op::cast, {x}, {}, {.dtype = dtype});
  }

  NodeId split(const GraphNode& n, std::uint64_t first) {
    add_.loc = n.loc;
    const NodeId part = add_.add(n.op, {cast(n.in[0], part_type(n, g_[n.in[0]].dtype))}, ir::Reduce{first});
    const std::uint64_t rest = ir::attributes<ir::Reduce>(n).mask & ~first;
    const NodeId whole = cast(add_.add(n.op, {part}, ir::Reduce{rest}), n.dtype);
    g_[whole].held = n.held;
    return whole;
  }

  Graph& g_;
  const double launch_bytes_;
  const std::int64_t held_;
  ir::Builder add_;
  std::vector<int> level_;
  std::vector<std::int64_t> spread_;
  std::vector<Group> groups_;
  std::vector<std::uint64_t> first_;  // by reduction: the axes to reduce first, or 0
};

}  // namespace

Renumbering share_reductions(Graph& graph, double launch_bytes, std::int64_t held) {
  return Sharer(graph, launch_bytes, held).run();
}

}  // namespace kiln::transform
