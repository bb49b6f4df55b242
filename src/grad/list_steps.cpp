// A walk from the results, as an evaluation walks (engine/walk.cpp): under the trace lock, operands first.
// Where a node is a leaf, the edge that the tape kept stands for its operands.
#include "grad/list_steps.h"

#include "record/trace_locks.h"

#include <algorithm>
#include <memory>
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
      out_.steps.push_back({p, {}, {}, {}});
    }
  }

  /// False: a node belongs to a trace that the guard does not cover.
  bool visit(Node* result) {
    std::vector<Frame> stack;
    if (!seen_.contains(result) && !enter(result, stack)) return false;
    while (!stack.empty()) {
      Frame& top = stack.back();
      if (top.next < top.in.size()) {
        Node* const in = top.in[top.next++];
        if (in && !seen_.contains(in) && !enter(in, stack)) return false;
        continue;
      }
      finish(top);
      stack.pop_back();
    }
    const std::uint32_t at = seen_.at(result);
    out_.result_at.push_back(at);
    return true;
  }

  Listing take() { return std::move(out_); }

 private:
  struct Frame {
    Node* node;
    std::shared_ptr<const ir::Edge> kept;  // of a leaf
    std::vector<Node*> in;                 // of a part: its bundle's operands
    std::size_t next = 0;
  };

  static std::vector<Node*> all_of(std::span<const NodeRef> in) {
    std::vector<Node*> out;
    for (const NodeRef& n : in) out.push_back(n.get());
    return out;
  }

  /// Puts a new node on the stack, or numbers it at once where nothing is behind it.
  bool enter(Node* n, std::vector<Frame>& stack) {
    const bool leaf = ir::op_now(n) == Op::leaf;
    if (!leaf && !guard_.covers(n->home)) return false;
    const auto kept = leaf ? ir::kept_edge(*n) : nullptr;
    const bool stops = !leaf && n->op == Op::alias && ir::attributes<ir::Alias>(*n).stops;
    if ((leaf && !kept) || stops) {
      seen_.emplace(n, Step::kNone);
      return true;
    }
    Frame frame{n, kept, {}, 0};
    if (leaf)
      frame.in = all_of(kept->in);
    else
      frame.in.assign(ir::operands(*n).begin(), ir::operands(*n).end());
    if ((leaf ? kept->op : n->op) == Op::part) {
      Node* const bundle = frame.in[0];
      frame.in.assign(ir::operands(*bundle).begin(), ir::operands(*bundle).end());
    }
    seen_.emplace(n, Step::kNone);  // until it is finished: there are no cycles
    stack.push_back(std::move(frame));
    return true;
  }

  void finish(const Frame& f) {
    Step s{NodeRef::share(f.node), {}, {}, {}};
    bool any = false;
    for (Node* in : f.in) {
      s.from.push_back(in ? seen_.at(in) : Step::kNone);
      any |= s.from.back() != Step::kNone;
    }
    if (!any || (ir::has_value(f.node->op) && !is_float(f.node->dtype))) return;
    s.edge = f.kept ? *f.kept : ir::edge_of(*f.node);
    if (s.edge.op == Op::part) become_bundle(s);
    seen_[f.node] = static_cast<std::uint32_t>(out_.steps.size());
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
  std::unordered_map<const Node*, std::uint32_t> seen_;  // the step; kNone: no primal is behind it
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
