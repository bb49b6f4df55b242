// A walk from the results under the trace lock, operands first. Then what depends on what is replaced is
// found by going through the list until nothing is added: a loop's states depend on what its body makes of
// them.
#include "vmap/list_dependents.h"

#include "record/trace_locks.h"

#include <algorithm>
#include <unordered_set>

namespace kiln::mapped {
namespace {

using ir::Node;
using ir::NodeRef;
using ir::Op;

class Lister {
 public:
  Lister(const std::function<bool(const Node*)>& known, const ir::TraceGuard& guard)
      : known_(known), guard_(guard) {}

  /// False: a node belongs to a trace that the guard does not cover.
  bool visit(Node* result) {
    std::vector<Frame> stack;
    if (!enter(result, stack)) return false;
    while (!stack.empty()) {
      Frame& top = stack.back();
      if (top.next < top.in.size()) {
        if (Node* const in = top.in[top.next++]; in && !enter(in, stack)) return false;
        continue;
      }
      order_.push_back(std::move(top));
      stack.pop_back();
    }
    return true;
  }

  Dependents take() {
    find_dependents();
    for (const Frame& f : order_)
      if (depends_.contains(f.node)) out_.nodes.push_back(NodeRef::share(f.node));
    for (const Frame& f : order_)
      if (f.call && depends_.contains(f.node)) out_.calls.emplace(f.node, f.call);
    return std::move(out_);
  }

 private:
  struct Frame {
    Node* node = nullptr;
    std::vector<Node*> in;
    std::size_t next = 0;
    std::shared_ptr<const ir::Call> call;  // whose result it is
  };

  bool enter(Node* n, std::vector<Frame>& stack) {
    if (known_(n) || !seen_.insert(n).second || ir::op_now(n) == Op::leaf) return true;
    if (!guard_.covers(n->home)) return false;
    Frame frame;
    frame.node = n;
    frame.in.assign(ir::operands(*n).begin(), ir::operands(*n).end());
    frame.call = n->op == Op::alias ? ir::kept_call(*n) : nullptr;
    if (frame.call) {  // all that the call reads, and the values of all of its results
      for (const NodeRef& in : frame.call->in) frame.in.push_back(in.get());
      for (const NodeRef& out : frame.call->out)
        if (out.get() != n && ir::op_now(out.get()) == Op::alias) frame.in.push_back(ir::operands(*out)[0]);
    }
    if (n->op == Op::loop) note_loop(n);
    stack.push_back(std::move(frame));
    return true;
  }

  void note_loop(Node* loop) {
    LoopParts parts;
    parts.condition = ir::operands(*loop)[1];
    for (Node* at = ir::operands(*loop)[0]; at;) {
      const auto in = ir::operands(*at);
      const bool state = at->op == Op::loop_next;
      if (state) {
        parts.states.push_back(in[0]);
        parts.nexts.push_back(in[1]);
        out_.loop_of.emplace(in[0], loop);
      } else {
        parts.yields.push_back(in[0]);
      }
      const std::size_t own = state ? 2 : 1;
      at = in.size() > own ? in[own] : nullptr;
    }
    for (auto* list : {&parts.states, &parts.nexts, &parts.yields}) std::reverse(list->begin(), list->end());
    out_.loops.emplace(loop, std::move(parts));
  }

  bool depends(const Node* n) const { return n && (depends_.contains(n) || known_(n)); }

  void find_dependents() {
    for (std::size_t before = 1, now = 0; before != now;) {
      before = depends_.size();
      for (const Frame& f : order_) {
        if (!std::ranges::any_of(f.in, [&](const Node* in) { return depends(in); })) continue;
        depends_.insert(f.node);
        if (f.node->op == Op::loop)
          for (const Node* state : out_.loops.at(f.node).states) depends_.insert(state);
      }
      now = depends_.size();
    }
  }

  const std::function<bool(const Node*)>& known_;
  const ir::TraceGuard& guard_;
  std::unordered_set<const Node*> seen_, depends_;
  std::vector<Frame> order_;
  Dependents out_;
};

}  // namespace

Dependents list_dependents(std::span<Node* const> results, const std::function<bool(const Node*)>& known) {
  ir::TraceGuard guard;
  for (;;) {
    Lister lister(known, guard);
    if (std::ranges::all_of(results, [&](Node* r) { return lister.visit(r); })) return lister.take();
    guard.widen();
  }
}

}  // namespace kiln::mapped
