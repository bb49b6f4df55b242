// Terminates: one walk in topological order; a node becomes at most two.
//
// Black and Scholes' put and call need erf of d1, d2, -d1 and -d2: with the signs outside, cse leaves two of
// the four.
#include "transform/negate.h"

#include "ir/builder.h"
#include "transform/nouns.h"
#include "transform/rebuild.h"

#include <utility>

namespace kiln::transform {
namespace {

class Negater {
 public:
  explicit Negater(Graph& graph) : g_(graph), add_(graph) {}

  Renumbering run() {
    return rebuild(g_, [&](NodeId, const GraphNode& n) { return is_float(n.dtype) ? place(n) : push(n); });
  }

 private:
  NodeId push(const GraphNode& n) { return add_.push(n); }

  /// x where operand k is -x, or kNoNode. Not for an operand that is spread over more elements: the sign
  /// would be turned for each of them.
  NodeId negated(const GraphNode& n, std::size_t k) const {
    const GraphNode& in = g_[n.in[k]];
    return in.op == Op::negative && in.dtype == n.dtype && in.numel == n.numel ? in.in[0] : kNoNode;
  }

  NodeId minus(GraphNode inner) {
    const bool held = std::exchange(inner.held, false);
    add_.loc = inner.loc;
    const NodeId outer = add_.add(Op::negative, {push(inner)});
    g_[outer].held = held;
    return outer;
  }

  NodeId place(GraphNode n) {
    const bool odd = ir::has(n.op, ir::ODD);
    if (odd || ir::has(n.op, ir::EVEN)) {
      bool sign = false;
      for (std::size_t k = 0; k < n.in.size(); ++k)
        if (const NodeId x = negated(n, k); x != kNoNode) {
          n.in[k] = x;
          sign = !sign;
        }
      return odd && sign ? minus(n) : push(n);
    }
    if (n.op == Op::add || n.op == Op::subtract) {
      if (const NodeId y = negated(n, 1); y != kNoNode) {  // x ± (-y) = x ∓ y
        n.in[1] = y;
        n.op = n.op == Op::add ? Op::subtract : Op::add;
      } else if (const NodeId x = negated(n, 0); x != kNoNode && n.op == Op::add) {  // -x + y = y - x
        n.in[0] = n.in[1];
        n.in[1] = x;
        n.op = Op::subtract;
      }
    }
    return push(n);
  }

  Graph& g_;
  ir::Builder add_;
};

}  // namespace

Renumbering negate(Graph& graph) { return Negater(graph).run(); }

}  // namespace kiln::transform
