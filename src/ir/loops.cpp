#include "ir/loops.h"

#include "support/check.h"

#include <algorithm>
#include <string_view>

namespace kiln::ir {
namespace {

/// Loops around a value, outermost first.
using Nest = std::vector<NodeId>;

void add(Nest& nest, NodeId loop) {
  if (std::find(nest.begin(), nest.end(), loop) == nest.end()) nest.push_back(loop);
}

class Finder {
 public:
  explicit Finder(const Graph& graph) : g_(graph), loop_of_(graph.size(), kNoNode), nest_(graph.size()) {}

  Loops run() {
    for (NodeId id = 0; id < g_.size(); ++id) {
      if (g_[id].op == Op::loop) parts(id);
      if (g_[id].op == Op::loop_state && g_[id].in.empty()) fail_example(id);
    }
    if (found_.loops.empty()) {
      for (NodeId id = 0; id < g_.size(); ++id)
        if (g_[id].op == Op::loop_state) fail(g_[id]);
      return {};
    }
    for (NodeId id = 0; id < g_.size(); ++id) nest(id);
    // What is inside: a loop's own nest is known when all of its operands' are.
    found_.owner.assign(g_.size(), kNoNode);
    for (NodeId id = 0; id < g_.size(); ++id) {
      for (NodeId l : nest_[id])
        if (found_.owner[id] == kNoNode || nest_[l].size() > nest_[found_.owner[id]].size())
          found_.owner[id] = l;
      for (NodeId l : nest_[id]) parts_of(l).body.push_back(id);
    }
    for (LoopParts& l : found_.loops) l.parent = found_.owner[l.node];
    for (NodeId root : g_.roots)
      if (found_.owner[root] != kNoNode) fail(g_[root]);
    return std::move(found_);
  }

 private:
  /// A value that depends on a state of no loop: the first one that was asked for.
  [[noreturn]] void fail_example(NodeId example) const {
    std::vector<bool> depends(g_.size());
    depends[example] = true;
    for (NodeId id = example + 1; id < g_.size(); ++id)
      for (const NodeId in : g_[id].in) depends[id] = depends[id] || (in != kNoNode && depends[in]);
    NodeId asked = example;
    for (const NodeId root : g_.roots)
      if (asked == example && depends[root]) asked = root;
    NodeId maker = asked;
    while (maker != example && g_[maker].op == Op::reshape) maker = g_[maker].in[0];  // as in sum(x)
    std::string_view made = info(g_[maker].op).name;
    if (made.starts_with("reduce_")) made.remove_prefix(7);
    const GraphNode& n = g_[asked];
    throw UserError(
        cat("[vmap] a value inside a mapped function is read, which stands for one of many examples and "
            "has none: ",
            maker == example ? "an argument" : made, ", ", name(n.dtype), " ", to_string(n.dims),
            ", recorded at ", n.loc.file_name(), ":", n.loc.line()));
  }
  [[noreturn]] static void fail(const GraphNode& n) {
    throw UserError(cat("[loop] a value made in a loop's body has no value outside of it: ", info(n.op).name,
                        ", recorded at ", n.loc.file_name(), ":", n.loc.line()));
  }

  LoopParts& parts_of(NodeId loop) {
    return *std::lower_bound(found_.loops.begin(), found_.loops.end(), loop,
                             [](const LoopParts& l, NodeId id) { return l.node < id; });
  }

  void parts(NodeId id) {
    LoopParts l;
    l.node = id;
    l.condition = g_[id].in[1];
    l.count = attributes<Loop>(g_[id]).count;
    for (NodeId next = g_[id].in[0]; next != kNoNode;) {
      const GraphNode& n = g_[next];
      if (n.op == Op::loop_yield) {
        l.yields.push_back(n.in[0]);
        next = n.in.size() > 1 ? n.in[1] : kNoNode;
        continue;
      }
      l.states.push_back(n.in[0]);
      l.nexts.push_back(n.in[1]);
      loop_of_[n.in[0]] = id;
      next = n.in.size() > 2 ? n.in[2] : kNoNode;
    }
    found_.loops.push_back(std::move(l));
  }

  void nest(NodeId id) {
    const GraphNode& n = g_[id];
    for (const NodeId in : n.in)
      for (NodeId l : nest_[in]) add(nest_[id], l);
    if (n.op == Op::loop_state) {
      if (loop_of_[id] == kNoNode) fail(n);
      add(nest_[id], loop_of_[id]);
    }
    if (n.op == Op::loop) std::erase(nest_[id], id);
  }

  const Graph& g_;
  std::vector<NodeId> loop_of_;  // of states
  std::vector<Nest> nest_;       // loops whose states a node depends on
  Loops found_;
};

}  // namespace

const LoopParts& Loops::of(NodeId loop) const {
  const auto l = std::lower_bound(loops.begin(), loops.end(), loop,
                                  [](const LoopParts& a, NodeId id) { return a.node < id; });
  KILN_CHECK_THAT(l != loops.end() && l->node == loop, "node ", loop, " is no loop");
  return *l;
}

Loops find_loops(const Graph& graph) { return Finder(graph).run(); }

}  // namespace kiln::ir
