// What an evaluation keeps: which nodes are stored and published, which arguments are overwritten.
#include "engine/plan_maker.h"
#include "ir/layout.h"
#include "plan/reuse.h"
#include "support/check.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace kiln::engine {
namespace {

constexpr std::int64_t kPinnedBytes = 16 << 10;  // of arguments that a held node may always keep alive
constexpr std::int64_t kPinnedRatio = 8;         // … and how much more than its own size

}  // namespace

void PlanMaker::store_pinning_nodes() {
  const ir::Loops loops = ir::find_loops(g_);
  std::vector<bool> held(g_.size());
  for (std::size_t i = 0; i < ids_.size(); ++i)
    if (wanted_[i] && t_.now[ids_[i]] != ir::kNoNode) held[t_.now[ids_[i]]] = true;
  // bytes, for each node and the nodes before it that are not stored
  std::vector<std::int64_t> read(g_.size());
  for (NodeId id = 0; id < g_.size(); ++id) {
    const ir::GraphNode& n = g_[id];
    const std::int64_t bytes = n.numel * size_of(n.dtype);
    if (n.op == ir::Op::leaf) read[id] = bytes;
    for (const NodeId in : n.in) read[id] = std::max(read[id], read[in]);
    const bool shows = ir::is_view(n.op) || ir::info(n.op).kind == ir::OpKind::Gather;
    if (shows && n.numel < g_[n.in[0]].numel) read[id] = std::min(read[id], bytes);
    if (!held[id] || n.op == ir::Op::leaf || !has_value(loops, id)) continue;
    const bool small = read[id] >= kPinnedBytes && bytes * kPinnedRatio <= read[id];
    if (!small && n.op != ir::Op::loop_result && n.op != ir::Op::loop_stack) continue;
    t_.graph.roots.push_back(id);
    read[id] = bytes;
  }
}

void PlanMaker::donate() {
  if (donatable_.empty()) return;
  const std::unordered_set<NodeId> later = read_later();
  std::vector<NodeId> leaves;
  for (const NodeId leaf : donatable_)
    if (const NodeId id = t_.now[leaf];
        !later.contains(leaf) && id != ir::kNoNode && g_[id].op == ir::Op::leaf)
      leaves.push_back(id);
  donations_ = plan::donate(t_.graph, leaves, wanted_nodes());
  if (donations_.now.empty()) return;
  for (NodeId& id : t_.now)
    if (id != ir::kNoNode) id = donations_.now[id];
}

std::unordered_set<NodeId> PlanMaker::read_later() const {
  std::vector<bool> root(g_.size()), stored(ids_.size()), read(ids_.size());
  for (const NodeId id : g_.roots) root[id] = true;
  for (std::uint32_t i = 0; i < ids_.size(); ++i) {
    const NodeId id = t_.now[ids_[i]];
    stored[i] = id != ir::kNoNode && root[id] && may_publish(i);
    read[i] = wanted_[i] && !stored[i];
  }
  std::unordered_set<NodeId> later;
  for (std::size_t i = ids_.size(); i-- > 0;) {
    if (!read[i]) continue;
    later.insert(ids_[i]);
    for (const std::uint32_t in : recorded_[i].operands)
      if (!stored[in]) read[in] = true;
  }
  return later;
}

std::vector<NodeId> PlanMaker::wanted_nodes() const {
  std::vector<NodeId> nodes;
  for (std::size_t i = 0; i < ids_.size(); ++i)
    if (wanted_[i] && t_.now[ids_[i]] != ir::kNoNode) nodes.push_back(t_.now[ids_[i]]);
  return nodes;
}

void PlanMaker::reuse() {
  reused_.clear();
  if (!reuses_ || walk_.reusable.empty()) return;
  const std::unordered_set<NodeId> later = read_later();
  std::vector<NodeId> leaves;
  for (const std::uint32_t position : walk_.reusable) {
    const NodeId id = t_.now[ids_[position]];
    if (later.contains(ids_[position]) || id == ir::kNoNode || g_[id].op != ir::Op::leaf) continue;
    if (std::ranges::find(donations_.args, static_cast<std::uint32_t>(g_[id].arg)) == donations_.args.end())
      leaves.push_back(id);
  }
  if (leaves.empty()) return;
  for (auto& [node, at] :
       plan::reuse(g_, regions_, leaves, wanted_nodes(), planning_target(device_).epilogues)) {
    reused_.push_back(at.arg);
    regions_.placements.emplace(node, std::move(at));
  }
  std::ranges::sort(reused_);
}

bool PlanMaker::drop_reuse(const plan::Region& r) {
  bool any = false;
  for (const NodeId o : r.outputs) {
    const auto at = regions_.placements.find(o);
    if (at == regions_.placements.end() || !at->second.whole) continue;
    accesses_[at->second.arg].write = -1;
    std::erase(reused_, at->second.arg);
    regions_.placements.erase(at);
    any = true;
  }
  return any;
}

bool PlanMaker::overwrites_too_early(std::span<const std::uint32_t> args) const {
  return std::ranges::any_of(args, [&](std::uint32_t arg) {
    return overlaps_ || accesses_[arg].write < 0 || accesses_[arg].last_read > accesses_[arg].write;
  });
}

void PlanMaker::add_results() {
  std::vector<bool> root(walk_.nodes.size());
  for (std::uint32_t r : walk_.roots) root[r] = true;
  published_.assign(walk_.nodes.size(), false);
  for (std::uint32_t i = 0; i < walk_.nodes.size(); ++i) {
    if (!wanted_[i] || (may_publish(i) && add_result(i, root[i]))) continue;
    KILN_CHECK_THAT(!root[i], "a root was not computed");
    const NodeId id = t_.now[ids_[i]];
    const bool computed =
        id != ir::kNoNode ? has_value(regions_.loops, id) : std::ranges::binary_search(t_.in_blocks, ids_[i]);
    if (!recorded_[i].cheap && computed) plan_->left_pending.push_back(i);
  }
  std::vector<bool> visited(walk_.nodes.size());
  for (std::uint32_t i : plan_->left_pending) add_nearest(i, visited);
}

bool PlanMaker::may_publish(std::uint32_t position) const {
  return !like_ ||
         std::ranges::find(like_->results, position, &Plan::Result::position) != like_->results.end();
}

bool PlanMaker::add_result(std::uint32_t i, bool root) {
  const NodeId id = t_.now[ids_[i]];
  if (id == ir::kNoNode || !has_value(regions_.loops, id) || overwritten_[id]) return false;
  Plan::Result result{i, {}, 0, {}, root};
  const auto placed = regions_.placements.find(id);
  if (buffer_of_[id] >= 0 || (placed != regions_.placements.end() && placed->second.whole)) {
    result.place = place_of(id, 0);
  } else {
    plan::Alias a = plan::resolve_alias(g_, id);
    const bool in_memory =
        a.base != ir::kNoNode && !overwritten_[a.base] &&
        (g_[a.base].op == ir::Op::leaf || buffer_of_[a.base] >= 0 || argument_of(a.base) >= 0);
    if (!in_memory) return false;
    result.place = place_of(a.base, 0);
    result.offset = a.offset;
    result.moved = moves_of(a, g_[id].dtype);
    result.strides = std::move(a.strides);
    if (ir::is_row_major(g_[id].dims, result.strides)) result.strides.clear();
  }
  if (result.place.kind == Place::Kind::Buffer) plan_->buffers[result.place.index].result = true;
  plan_->results.push_back(std::move(result));
  published_[i] = true;
  return true;
}

void PlanMaker::add_nearest(std::uint32_t pending, std::vector<bool>& visited) {
  std::vector<std::uint32_t> stack{pending};
  while (!stack.empty()) {
    const std::uint32_t i = stack.back();
    stack.pop_back();
    for (const std::uint32_t in : recorded_[i].operands) {
      if (visited[in] || published_[in]) continue;
      visited[in] = true;
      const NodeId id = t_.now[ids_[in]];
      if (id == ir::kNoNode || g_[id].op == ir::Op::leaf || buffer_of_[id] < 0 || !may_publish(in) ||
          !add_result(in, false))
        stack.push_back(in);
    }
  }
}

std::vector<bool> PlanMaker::wanted(const Walk& walk, const ir::Graph& g, const std::vector<NodeId>& ids) {
  std::vector<bool> w(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) w[i] = g[ids[i]].op != ir::Op::leaf && g[ids[i]].held;
  for (std::uint32_t r : walk.roots) w[r] = true;
  for (std::uint32_t s : walk.stored) w[s] = true;
  return w;
}

std::vector<PlanMaker::Recorded> PlanMaker::recorded(const Walk& walk, const ir::Graph& g,
                                                     const std::vector<NodeId>& ids) {
  constexpr int kFewOperations = 8;
  std::vector<std::uint32_t> position(g.size(), Walk::kNone);
  for (std::uint32_t i = 0; i < ids.size(); ++i) position[ids[i]] = i;
  std::vector<int> cost(g.size(), kFewOperations + 1);
  std::vector<Recorded> out(walk.nodes.size());
  std::unordered_map<NodeId, std::vector<NodeId>>
      inner;  // by node without a position, of operations of several
  std::vector<NodeId> in;
  for (NodeId id = 0; id < g.size(); ++id) {
    const ir::GraphNode& n = g[id];
    if (n.op == ir::Op::scalar || n.op == ir::Op::iota ||
        ((ir::is_elementwise(n.op) || ir::is_view(n.op)) && !ir::is_random(n.op)))
      cost[id] = 1;
    for (const NodeId x : n.in) cost[id] += cost[x];
    cost[id] = std::min(cost[id], kFewOperations + 1);
    in.clear();
    for (const NodeId x : n.in)
      if (position[x] != Walk::kNone)
        in.push_back(position[x]);
      else if (const auto of = inner.find(x); of != inner.end())
        in.insert(in.end(), of->second.begin(), of->second.end());
    if (position[id] == Walk::kNone) {
      if (!in.empty()) inner.emplace(id, in);
      continue;
    }
    Recorded& r = out[position[id]];
    r.cheap = cost[id] <= kFewOperations;
    r.operands.assign(in);
  }
  return out;
}

}  // namespace kiln::engine
