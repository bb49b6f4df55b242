#include "engine/loop_graphs.h"

#include "support/check.h"

#include <algorithm>

namespace kiln::engine {
namespace {

using ir::Graph;
using ir::GraphNode;
using ir::kNoNode;
using ir::NodeId;
using ir::Op;

class Extractor {
 public:
  Extractor(const Graph& g, const plan::Regions& regions, const ir::LoopParts& loop)
      : g_(g), regions_(regions), loop_(loop) {}

  LoopGraphs run() {
    LoopGraphs out;
    begin(out.body);
    const std::size_t first = loop_.counts();
    for (std::size_t s = first; s < loop_.states.size(); ++s) need(loop_.nexts[s]);
    for (NodeId state : loop_.states) need(state);
    for (NodeId yield : loop_.yields) need(yield);
    need(loop_.condition);
    copy();
    for (std::size_t s = first; s < loop_.states.size(); ++s) out.body.roots.push_back(next_value(s));
    for (NodeId yield : loop_.yields) out.body.roots.push_back(made_[yield]);
    for (NodeId root : out.body.roots) out.body[root].held = true;
    begin(out.condition);
    need(loop_.condition);
    copy();
    out.condition.roots.push_back(any_true(made_[loop_.condition]));
    out.captures = captures_;
    return out;
  }

 private:
  void begin(Graph& to) {
    to_ = &to;
    to.slots = g_.slots;
    made_.assign(g_.size(), kNoNode);
    needed_.assign(g_.size(), false);
    for (NodeId state : loop_.states) add_argument(state, true);
    for (NodeId capture : captures_) add_argument(capture, false);
  }

  bool is_state(NodeId id) const {
    return std::find(loop_.states.begin(), loop_.states.end(), id) != loop_.states.end();
  }
  bool is_argument(NodeId id) const {
    if (regions_.loops.owner_of(id) == kNoNode) return g_[id].op == Op::leaf || regions_.stored[id];
    return is_state(id);
  }

  void need(NodeId root) {
    std::vector<NodeId> stack{root};
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      if (needed_[id]) continue;
      needed_[id] = true;
      if (is_argument(id)) continue;
      for (const NodeId in : g_[id].in) stack.push_back(in);
    }
  }

  void copy() {
    for (NodeId id = 0; id < g_.size(); ++id) {
      if (!needed_[id]) continue;
      GraphNode n = g_[id];
      if (is_argument(id)) {
        n = leaf_of(id);
      } else {
        for (NodeId& in : n.in) in = made_[in];
        n.attrs = to_->keep(n.attrs);
      }
      n.dims = to_->keep(n.dims);
      n.held = false;
      made_[id] = push(n);
    }
  }

  NodeId push(const GraphNode& n) {
    to_->nodes.push_back(n);
    return to_->size() - 1;
  }

  GraphNode leaf_of(NodeId id) {
    GraphNode n;
    n.op = Op::leaf;
    n.dtype = g_[id].dtype;
    n.dims = g_[id].dims;
    n.numel = g_[id].numel;
    n.loc = g_[id].loc;
    const auto state = std::find(loop_.states.begin(), loop_.states.end(), id);
    auto capture = std::find(captures_.begin(), captures_.end(), id);
    if (state != loop_.states.end()) {
      n.arg = static_cast<std::int32_t>(state - loop_.states.begin());
      return n;
    }
    const auto at = capture - captures_.begin();
    if (capture == captures_.end()) {
      captures_.push_back(id);
      add_argument(id, false);
    }
    n.arg = static_cast<std::int32_t>(loop_.states.size()) + static_cast<std::int32_t>(at);
    return n;
  }

  void add_argument(NodeId id, bool state) {
    ir::ArgInfo a;
    a.dtype = g_[id].dtype;
    a.dims = to_->keep(g_[id].dims);
    a.alignment = static_cast<std::uint32_t>(size_of(a.dtype));
    if (!state && g_[id].op == Op::leaf) {
      a.strides = to_->keep(g_.args[static_cast<std::size_t>(g_[id].arg)].strides);
    } else {
      std::vector<std::int64_t> strides(a.dims.size(), 1);
      for (std::size_t i = strides.size(); i-- > 1;) strides[i - 1] = strides[i] * a.dims[i];
      a.strides = to_->keep(strides);
    }
    to_->args.push_back(a);
  }

  /// A state's next value: chosen element by element where the condition has elements, and wherever the plan
  /// would show it as a view of other memory.
  NodeId next_value(std::size_t s) {
    const NodeId next = made_[loop_.nexts[s]], condition = made_[loop_.condition];
    const Op next_op = (*to_)[next].op;
    const ir::OpKind kind = ir::info(next_op).kind;
    const bool computed = kind == ir::OpKind::Elementwise || kind == ir::OpKind::Reduce ||
                          kind == ir::OpKind::Contraction || kind == ir::OpKind::Scan ||
                          kind == ir::OpKind::Gather || kind == ir::OpKind::Cast || next_op == Op::slice_at ||
                          next_op == Op::update_at || next_op == Op::pad || next_op == Op::join;
    if (computed && (*to_)[condition].numel == 1) return next;
    GraphNode n = (*to_)[next];
    n.op = Op::where;
    ir::set_attributes(n, ir::Nothing{});
    n.arg = -1;
    n.in = {condition, next, made_[loop_.states[s]]};
    return push(n);
  }

  NodeId any_true(NodeId condition) {
    GraphNode n = (*to_)[condition];
    if (n.numel == 1) return condition;
    n.op = Op::reduce_max;
    n.in = {condition};
    ir::set_attributes(n, ir::Reduce{(std::uint64_t{1} << n.dims.size()) - 1});
    n.arg = -1;
    n.dims = to_->keep(std::vector<std::int64_t>(n.dims.size(), 1));
    n.numel = 1;
    return push(n);
  }

  const Graph& g_;
  const plan::Regions& regions_;
  const ir::LoopParts& loop_;
  Graph* to_ = nullptr;
  std::vector<NodeId> made_, captures_;
  std::vector<bool> needed_;
};

}  // namespace

LoopGraphs loop_graphs(const Graph& graph, const plan::Regions& regions, const ir::LoopParts& loop) {
  return Extractor(graph, regions, loop).run();
}

}  // namespace kiln::engine
