// Rules that keep every bit, applied to each node once its operands are simplified, until none applies.
//
// Terminates: a rule replaces the node by an earlier one, makes it a constant, or makes it read an operand of
// its operand (smaller ids each time); `where(!c, x, y)` and `abs(-x)` do that too, and a node turned into a
// broadcast never turns back.
#include "transform/simplify.h"

#include "ir/builder.h"
#include "kernel/monoid.h"
#include "support/check.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kiln::transform {
namespace {

using ir::Dims;
using ir::Graph;
using ir::GraphNode;
using ir::kNoNode;
using ir::NodeId;
using ir::Op;
using ir::OpKind;

bool same(Dims a, Dims b) {
  return a.size() == b.size() && (a.data() == b.data() || std::equal(a.begin(), a.end(), b.begin()));
}

std::uint64_t bits_of(DType type, double value) {
  return dispatch(type, [&]<class T>() {
    T v;
    if constexpr (is_storage_float<T>)
      v = T(static_cast<float>(value));
    else
      v = static_cast<T>(value);
    std::uint64_t bits = 0;
    std::memcpy(&bits, &v, sizeof(T));
    return bits;
  });
}

/// Bits of precision: integers below 2^digits (and -2^digits) are exact.
int digits(DType t) {
  switch (t) {
    case DType::Float16: return 11;
    case DType::BFloat16: return 8;
    case DType::Float8E4M3FN: return 4;
    case DType::Float8E5M2: return 3;
    case DType::Float32: return 24;
    case DType::Float64: return 53;
    case DType::Bool: return 1;
    case DType::Int8:
    case DType::Int16:
    case DType::Int32:
    case DType::Int64:
    case DType::UInt8:
    case DType::UInt16:
    case DType::UInt32:
    case DType::UInt64: break;
  }
  return static_cast<int>(8 * size_of(t)) - (is_signed_int(t) ? 1 : 0);
}

/// Whether every value of `narrow` is a value of `wide`. (The range of a float type covers what its digits
/// do.)
bool holds(DType wide, DType narrow) {
  if (wide == narrow || is_bool(narrow)) return true;
  if (is_bool(wide) || (is_float(narrow) && !is_float(wide))) return false;
  if (is_float(narrow)) return is_half(narrow) ? !is_half(wide) : wide == DType::Float64;
  if (is_signed_int(narrow) && is_unsigned_int(wide)) return false;
  return digits(wide) >= digits(narrow);
}

/// Whether a -> b -> c converts like a -> c. There and back is not nothing of a half: its value may be
/// computed in more bits, and a conversion rounds it.
bool through_is_direct(DType a, DType b, DType c) {
  if (!holds(b, a) || (is_half(a) && c == a)) return false;
  // Integers wrap, floats saturate: the way through a float differs where c cannot hold the value.
  return !(is_int(a) && is_float(b) && is_int(c)) || holds(c, a);
}

class Simplifier {
 public:
  explicit Simplifier(Graph& graph) : g_(graph), now_(graph) {}

  Renumbering run() {
    for (NodeId id = 0; id < g_.size(); ++id) {
      now_.forward_inputs(g_[id]);
      for (;;) {
        const NodeId result = apply(id);
        if (result == kNoNode) break;
        if (result == id) continue;
        now_.replace(id, result);
        break;
      }
    }
    return now_.finish();
  }

 private:
  // A rule returns the node that has this value already, `id` when it changed the node, kNoNode when it did
  // not apply.

  NodeId apply(NodeId id) {
    GraphNode& n = g_[id];
    switch (ir::info(n.op).kind) {
      case OpKind::Leaf:
      case OpKind::Scalar:
      case OpKind::Iota:
      case OpKind::LoopState:
      case OpKind::LoopNext:
      case OpKind::Loop:
      case OpKind::LoopResult:
      case OpKind::LoopStack:
      case OpKind::Gather:
      case OpKind::Library:
      case OpKind::Part:
      case OpKind::Contraction: return kNoNode;
      case OpKind::Scan: return scan(id, n);
      case OpKind::Cast: return cast(id, n);
      case OpKind::View:
        switch (n.op) {
          case Op::pad: return pad(id, n);
          case Op::join: return join(id, n);
          case Op::slice_at: return slice_at(id, n);
          case Op::update_at: return same(in(n).dims, n.dims) ? n.in[0] : kNoNode;
          default: return view(id, n);  // of one operand
        }
      case OpKind::Reduce: return reduce(id, n);
      case OpKind::Elementwise: return elementwise(id, n);
    }
    return kNoNode;
  }

  GraphNode& in(const GraphNode& n, std::size_t k = 0) { return g_[n.in[k]]; }

  NodeId become_constant(NodeId id, std::uint64_t bits) {
    ir::Builder(g_).redefine(g_[id], Op::constant, {}, ir::Constant{bits});
    return id;
  }
  NodeId become_broadcast(NodeId id, NodeId x) {
    ir::Builder(g_).redefine(g_[id], Op::broadcast, {x});
    return id;
  }
  static std::uint64_t constant_bits(const GraphNode& n) { return ir::attributes<ir::Constant>(n).bits; }
  NodeId become_constant(NodeId id, double value) {
    return become_constant(id, bits_of(g_[id].dtype, value));
  }
  /// The node's value is x's, repeated where x is smaller.
  NodeId become_value(NodeId id, NodeId x) {
    if (same(g_[id].dims, g_[x].dims)) return x;
    return become_broadcast(id, x);
  }

  // ---- casts ----

  NodeId cast(NodeId id, GraphNode& n) {
    if (in(n).dtype == n.dtype) return become_value(id, n.in[0]);
    if (n.op == Op::bitcast) {  // only the last of several matters
      if (in(n).op != Op::bitcast) return kNoNode;
      n.in[0] = in(n).in[0];
      return id;
    }
    if (in(n).op != Op::cast || !through_is_direct(in(in(n)).dtype, in(n).dtype, n.dtype)) return kNoNode;
    n.in[0] = in(n).in[0];
    return id;
  }

  /// Of single elements: themselves, or what comes before all.
  NodeId scan(NodeId id, const GraphNode& n) {
    const auto how = ir::attributes<ir::Scan>(n);
    if (n.dims[how.axis] != 1) return kNoNode;
    if (!how.exclusive) return n.in[0];
    switch (ir::info(n.op).fold) {
      case ir::Fold::Sum: return become_constant(id, 0.0);
      case ir::Fold::Prod: return become_constant(id, 1.0);
      case ir::Fold::LogAddExp: return become_constant(id, -HUGE_VAL);
      case ir::Fold::Max:
        return become_constant(id, kernel::identity({.monoid = kernel::Monoid::Max, .type = n.dtype}));
      case ir::Fold::Min:
        return become_constant(id, kernel::identity({.monoid = kernel::Monoid::Min, .type = n.dtype}));
      case ir::Fold::None:
      case ir::Fold::ArgMax:
      case ir::Fold::ArgMin: break;  // of reductions
    }
    return kNoNode;
  }

  // ---- views ----

  NodeId view(NodeId id, GraphNode& n) {
    if (changes_nothing(n)) return n.in[0];
    const GraphNode x = in(n);
    if (x.op == Op::constant) return become_constant(id, constant_bits(x));
    // One number seen in any way is that number repeated.
    if (x.op == Op::broadcast && in(x).dims.empty()) return become_broadcast(id, x.in[0]);
    if (n.op == Op::reshape && x.dims.empty()) return become_broadcast(id, n.in[0]);
    if (x.op != n.op) return kNoNode;
    switch (n.op) {  // which views of views are one
      case Op::reshape:
      case Op::broadcast: break;
      case Op::permute: ir::set_attributes(g_, n, composed_axes(n, x)); break;
      case Op::slice: compose_slice(n, x); break;
      default: return kNoNode;
    }
    n.in[0] = x.in[0];
    return id;
  }

  /// A slice at a position of what is the same everywhere, or of all there is.
  NodeId slice_at(NodeId id, GraphNode& n) {
    const GraphNode& x = in(n);
    if (same(n.dims, x.dims)) return n.in[0];
    if (x.op == Op::constant) return become_constant(id, constant_bits(x));
    if (x.op != Op::broadcast || !in(x).dims.empty()) return kNoNode;
    return become_broadcast(id, x.in[0]);
  }

  bool changes_nothing(const GraphNode& n) {
    if (!same(n.dims, in(n).dims)) return false;
    return n.op == Op::reshape || ir::view_map(n, in(n).dims).is_identity(n.dims);
  }

  /// Of a pad whose operand and result have equal extents: whether it moves nothing.
  static bool starts_at_zero(const GraphNode& n) {
    const auto box = ir::attributes<ir::Box>(n);
    for (std::size_t a = 0; a < n.dims.size(); ++a)
      if (n.dims[a] != 0 && (box.first(a) != 0 || (box.step(a) != 1 && n.dims[a] != 1))) return false;
    return true;
  }

  static ir::Permute composed_axes(const GraphNode& n, const GraphNode& x) {
    const auto outer = ir::attributes<ir::Permute>(n), inner = ir::attributes<ir::Permute>(x);
    ir::Permute axes;
    for (std::size_t a = 0; a < n.dims.size(); ++a) axes.show(a, inner[outer[a]]);
    return axes;
  }

  void compose_slice(GraphNode& n, const GraphNode& x) {
    const auto outer = ir::attributes<ir::Box>(n), inner = ir::attributes<ir::Box>(x);
    Shape first, step;
    for (std::size_t a = 0; a < n.dims.size(); ++a) {
      // Steps nobody takes may be anything: 1 keeps products from overflowing.
      first.push_back(n.dims[a] == 0 ? 0 : inner.first(a) + inner.step(a) * outer.first(a));
      step.push_back(n.dims[a] <= 1 ? 1 : inner.step(a) * outer.step(a));
    }
    ir::set_attributes(g_, n, ir::Box(first, step));
  }

  NodeId pad(NodeId id, GraphNode& n) {
    const GraphNode &body = in(n, 0), &fill = in(n, 1);
    if (body.numel == 0 && n.numel != 0) return become_value(id, n.in[1]);
    if (same(n.dims, body.dims) && starts_at_zero(n)) return n.in[0];
    if (body.op == Op::constant && fill.op == Op::constant && constant_bits(body) == constant_bits(fill))
      return become_constant(id, constant_bits(body));
    return kNoNode;
  }

  /// Without operands that have no elements; of one operand it is that operand.
  NodeId join(NodeId id, GraphNode& n) {
    if (n.in.size() == 1) return n.in[0];
    if (n.numel == 0) return kNoNode;
    const GraphNode& first = in(n);
    const auto is_first = [&](NodeId x) {
      return g_[x].op == Op::constant && constant_bits(g_[x]) == constant_bits(first);
    };
    if (first.op == Op::constant && std::ranges::all_of(n.in, is_first))
      return become_constant(id, constant_bits(first));
    std::vector<NodeId> some;
    for (const NodeId x : n.in)
      if (g_[x].numel != 0) some.push_back(x);
    if (some.size() == n.in.size()) return kNoNode;
    n.in.assign(some);
    return id;
  }

  // ---- reductions ----

  NodeId reduce(NodeId id, GraphNode& n) {
    const GraphNode& x = in(n);
    bool one = true, none = false;
    for (std::size_t a = 0; a < x.dims.size(); ++a) {
      if (!ir::attributes<ir::Reduce>(n).over(a)) continue;
      one &= x.dims[a] == 1;
      none |= x.dims[a] == 0;
    }
    const bool position = ir::has(n.op, ir::POSITION);
    if (one) return position ? become_constant(id, 0.0) : n.in[0];
    if (!none || n.numel == 0) return kNoNode;
    // Of no elements: any is false, all is true; other extremes were refused when they were recorded.
    const ir::OpInfo& facts = ir::info(n.op);
    KILN_CHECK_THAT(!ir::chooses(facts.fold) || is_bool(n.dtype), facts.name);
    return become_constant(id, facts.of_none);
  }

  // ---- elementwise ----

  NodeId elementwise(NodeId id, GraphNode& n) {
    switch (n.in.size()) {
      case 1: return unary(id, n);
      case 2: return n.in[0] == n.in[1] ? of_itself(id, n) : with_constant(id, n);
      default: return n.op == Op::where ? where(id, n) : kNoNode;  // ops of one, two or three operands
    }
  }

  NodeId unary(NodeId id, GraphNode& n) {
    const GraphNode& x = in(n);
    if (x.op == n.op && ir::has(n.op, ir::INVOLUTION)) return become_value(id, x.in[0]);
    if (x.op == n.op && ir::has(n.op, ir::IDEMPOTENT)) return become_value(id, n.in[0]);
    if (ir::has(n.op, ir::ROUNDS) && ir::has(x.op, ir::WHOLE)) return become_value(id, n.in[0]);
    if (n.op != Op::abs) return kNoNode;
    if (is_unsigned_int(n.dtype)) return become_value(id, n.in[0]);  // first: -x is another there
    if (x.op != Op::negative) return kNoNode;
    n.in[0] = x.in[0];
    return id;
  }

  NodeId of_itself(NodeId id, GraphNode& n) {
    const bool exact = !is_float(in(n).dtype);
    if (ir::has(n.op, ir::IDEMPOTENT)) return become_value(id, n.in[0]);
    switch (n.op) {
      case Op::bitwise_xor:
      case Op::logical_xor: return become_constant(id, 0.0);
      case Op::subtract:
      case Op::not_equal:
      case Op::less:
      case Op::greater:  // inf - inf and NaN != NaN
        return exact ? become_constant(id, 0.0) : kNoNode;
      case Op::equal:
      case Op::less_equal:
      case Op::greater_equal: return exact ? become_constant(id, 1.0) : kNoNode;
      default: return with_constant(id, n);  // nothing known of x op x
    }
  }

  /// Neutral and absorbing baked constants.
  NodeId with_constant(NodeId id, GraphNode& n) {
    for (int k = 0; k < 2; ++k) {
      const GraphNode& c = in(n, k);
      if (c.op != Op::constant) continue;
      const bool right = k == 1, floating = is_float(c.dtype);
      const auto is = [&](double value) { return constant_bits(c) == bits_of(c.dtype, value); };
      bool neutral = false, absorbing = false;
      switch (n.op) {
        case Op::multiply: neutral = is(1); break;
        case Op::divide: neutral = right && is(1); break;
        case Op::add: neutral = floating ? is(-0.0) : is(0); break;  // -0 + 0 is 0
        case Op::subtract:
        case Op::bitwise_left_shift:
        case Op::bitwise_right_shift: neutral = right && is(0); break;
        case Op::bitwise_or:
        case Op::bitwise_xor:
        case Op::logical_xor: neutral = is(0); break;
        case Op::bitwise_and: absorbing = is(0); break;
        case Op::logical_and:
          neutral = is(1);
          absorbing = is(0);
          break;
        case Op::logical_or:
          neutral = is(0);
          absorbing = is(1);
          break;
        default: break;  // no constant is exactly neutral
      }
      if (neutral) return become_value(id, n.in[1 - k]);
      if (absorbing) return become_constant(id, constant_bits(c));
    }
    return kNoNode;
  }

  NodeId where(NodeId id, GraphNode& n) {
    const GraphNode& c = in(n, 0);
    if (c.op == Op::constant) return become_value(id, n.in[constant_bits(c) & 1 ? 1 : 2]);
    if (n.in[1] == n.in[2]) return become_value(id, n.in[1]);
    if (c.op != Op::logical_not) return kNoNode;
    n.in[0] = c.in[0];
    std::swap(n.in[1], n.in[2]);
    return id;
  }

  Graph& g_;
  Replacement now_;
};

}  // namespace

Renumbering simplify(Graph& graph) { return Simplifier(graph).run(); }

}  // namespace kiln::transform
