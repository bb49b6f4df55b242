// A walk from the results, as an evaluation walks (engine/walk.cpp): under the trace lock, operands first.
// Where a node is a leaf, the edge that the tape kept stands for its operands.
#include "grad/list_steps.h"

#include "grad/loops.h"
#include "record/trace_locks.h"

#include <kiln/error.h>

#include <algorithm>
#include <memory>
#include <memory_resource>
#include <unordered_map>

namespace kiln::diff {
namespace {

using ir::Node;
using ir::NodeRef;
using ir::Op;

class Lister {
 public:
  Lister(std::span<const NodeRef> primals, const ir::TraceGuard& guard) : guard_(guard) {
    for (const NodeRef& p : primals) {
      seen_.emplace(p.get(), static_cast<std::uint32_t>(out_.steps.size()));
      out_.steps.emplace_back().node = p;
    }
  }

  /// False: a node belongs to a trace that the guard does not cover.
  bool visit(Node* result) {
    std::vector<Frame> stack;
    if (!seen_.contains(result) && !enter(result, stack)) return false;
    while (!stack.empty()) {
      Frame& top = stack.back();
      if (top.next < top.end) {
        Node* const in = operands_[top.next++];
        if (in && !seen_.contains(in) && !enter(in, stack)) return false;
        continue;
      }
      if (const Called call = std::exchange(top.call, {}); call.key && !seen_.contains(call.key)) {
        enter_call(call, stack);
        continue;
      }
      finish(top);
      operands_.resize(top.first);
      stack.pop_back();
    }
    out_.result_at.push_back(seen_.at(result));
    return true;
  }

  Listing take() { return std::move(out_); }

 private:
  /// A call, and what tells it from others: the loop's node, or the call that somebody noted.
  struct Called {
    const void* key = nullptr;
    std::vector<NodeRef> in;
    std::shared_ptr<const CallRule> rule;
  };
  struct Frame {
    Node* node = nullptr;                      // null: a call
    std::shared_ptr<const ir::Edge> kept;      // of a leaf
    std::size_t first = 0, next = 0, end = 0;  // in operands_; of a part: its bundle's operands
    Called call;                               // of a result: visited behind its operands
    const void* key = nullptr;                 // in seen_
    const void* made_by = nullptr;
    int result_of_call = -1;
    std::shared_ptr<const CallRule> rule;
  };

  static Node* pointer(Node* n) { return n; }
  static Node* pointer(const NodeRef& n) { return n.get(); }
  /// Puts a frame's operands behind those of the frames below it.
  template <class List>
  void set_operands(Frame& frame, const List& in) {
    frame.first = frame.next = operands_.size();
    for (const auto& n : in) operands_.push_back(pointer(n));
    frame.end = operands_.size();
  }

  /// Puts a new node on the stack, or numbers it at once where nothing is behind it.
  bool enter(Node* n, std::vector<Frame>& stack) {
    const Op op = ir::op_now(n);
    const bool leaf = op == Op::leaf;
    // Nothing flows through whole numbers. Of those that are computed nothing is known; so of those that are
    // not nothing is looked at, or the order of steps, and of sums, would depend on that.
    if (ir::has_value(op) && !is_float(n->dtype)) {
      seen_.emplace(n, Step::kNone);
      return true;
    }
    if (!leaf && !guard_.covers(n->home)) return false;
    Frame frame;
    frame.node = n;
    frame.key = n;
    set_operands(frame, std::span<Node* const>());
    if (const auto call = ir::kept_call(*n)) {
      enter_result(std::move(frame), *call, leaf, stack);
      return true;
    }
    frame.kept = leaf ? ir::kept_edge(*n) : nullptr;
    const bool stops = !leaf && n->op == Op::alias && ir::attributes<ir::Alias>(*n).stops;
    if ((leaf && !frame.kept) || stops) {
      seen_.emplace(n, Step::kNone);
      return true;
    }
    const Op made_by = leaf ? frame.kept->op : n->op;
    if (rule_of(made_by).by_call) {
      const ir::Edge edge = leaf ? *frame.kept : ir::edge_of(*n);
      Node* const loop = edge.in[0].get();
      std::shared_ptr<const LoopRule>& rule = loops_[loop];
      if (!rule) rule = LoopRule::of(loop, guard_);
      if (!rule) return false;
      frame.result_of_call = rule->result_of(edge);
      frame.made_by = loop;
      frame.call = {loop, rule->operands(), rule};
    } else if (made_by == Op::part) {
      set_operands(frame, ir::operands(leaf ? *frame.kept->in[0] : *n->in[0]));
    } else if (leaf) {
      set_operands(frame, frame.kept->in);
    } else {
      set_operands(frame, ir::operands(*n));
    }
    seen_.emplace(n, Step::kNone);  // until it is finished: there are no cycles
    stack.push_back(std::move(frame));
    return true;
  }

  /// A result of a call that somebody noted. What the function itself computed is not followed, but must not
  /// depend on a primal in another way than through the operands.
  void enter_result(Frame frame, const ir::Call& call, bool leaf, std::vector<Frame>& stack) {
    const auto at = std::ranges::find_if(call.out, [&](const NodeRef& r) { return r.get() == frame.node; });
    frame.result_of_call = static_cast<int>(at - call.out.begin());
    frame.made_by = &call;
    frame.call = {&call, call.in, std::static_pointer_cast<const CallRule>(call.rule)};
    if (!leaf) set_operands(frame, ir::operands(*frame.node));
    seen_.emplace(frame.node, Step::kNone);
    stack.push_back(std::move(frame));
  }

  void enter_call(const Called& call, std::vector<Frame>& stack) {
    Frame frame;
    frame.key = call.key;
    set_operands(frame, call.in);
    frame.rule = call.rule;
    seen_.emplace(call.key, Step::kNone);
    stack.push_back(std::move(frame));
  }

  void finish(const Frame& f) {
    Step s;
    if (f.node) s.node = NodeRef::share(f.node);
    bool any = false;
    from_.clear();
    for (Node* in : std::span(operands_).subspan(f.first, f.end - f.first)) {
      from_.push_back(in ? seen_.at(in) : Step::kNone);
      any |= from_.back() != Step::kNone;
    }
    s.from.assign(from_);
    if (f.made_by) {
      if (any)
        throw UserError("[custom_vjp] the function reads a differentiated value that is no argument of it");
      s.from = {seen_.at(f.made_by)};
      any = s.from[0] != Step::kNone;
    }
    if (!any) return;
    s.call = f.rule;
    s.result_of_call = f.result_of_call;
    if (f.node && !f.made_by) s.edge = f.kept ? *f.kept : ir::edge_of(*f.node);
    if (f.made_by) s.edge.loc = f.node->loc;
    if (s.edge.op == Op::part) become_bundle(s);
    seen_[f.key] = static_cast<std::uint32_t>(out_.steps.size());
    out_.steps.push_back(std::move(s));
  }

  /// A result of an operation of several: the step is that operation.
  static void become_bundle(Step& s) {
    const NodeRef bundle = s.edge.in[0];
    s.others.assign(s.edge.in.begin() + 1, s.edge.in.end());
    std::reverse(s.others.begin(), s.others.end());
    s.edge = ir::edge_of(*bundle);
  }

  const ir::TraceGuard& guard_;
  std::unordered_map<const Node*, std::shared_ptr<const LoopRule>> loops_;
  std::pmr::monotonic_buffer_resource memory_;
  std::pmr::unordered_map<const void*, std::uint32_t> seen_{&memory_};  // the step; kNone: no primal behind
  std::vector<Node*> operands_;                                         // of all frames, one behind the other
  std::vector<std::uint32_t> from_;                                     // of the step that is being made
  Listing out_;
};

}  // namespace

Listing list_steps(std::span<const NodeRef> primals, std::span<const NodeRef> results) {
  ir::TraceGuard guard;
  for (;;) {
    Lister lister(primals, guard);
    if (std::ranges::all_of(results, [&](const NodeRef& r) { return lister.visit(r.get()); }))
      return lister.take();
    guard.widen();
  }
}

}  // namespace kiln::diff
