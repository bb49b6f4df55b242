#include "engine/walk.h"

#include "engine/positions.h"
#include "engine/stored_values.h"
#include "ir/pad_fill.h"
#include "plan/donate.h"
#include "plan/reuse.h"
#include "record/learned_lines.h"
#include "support/check.h"

#include <cstring>

namespace kiln::engine {
namespace {

using ir::Node;
using ir::Op;

/// Op lists the structural operations first.
constexpr Op kFirstElementwise = Op::add;
constexpr std::uint64_t kUpdated = std::uint64_t{1} << 40;  // marks a leaf that is updated
constexpr std::uint64_t kLarge = std::uint64_t{1} << 41;    // marks a leaf whose memory a result may take
constexpr std::uint64_t kSlot = 0x80000000u;                // marks a scalar operand in a key word
constexpr std::uint64_t kStored = std::uint64_t{1} << 32;   // marks a stored node in one

/// What the key and the graph have of a pad's fill.
std::uint64_t zero_fill(const Node* n) { return n->in[1] == nullptr && n->imm == 0 ? ir::kZeroFill : 0; }

/// dtype of the immediate operand k of a node.
DType immediate_dtype(const Node* n, std::size_t k) {
  const ir::OpInfo& info = ir::info(n->op);
  if (info.rule == ir::TypeRule::Logical || (info.rule == ir::TypeRule::Select && k == 0)) return DType::Bool;
  if (info.rule == ir::TypeRule::Word32) return DType::UInt64;
  if (info.rule == ir::TypeRule::FromBits) return DType::UInt8;
  if (info.rule == ir::TypeRule::ToBits) return DType::Float32;
  if (info.rule == ir::TypeRule::Compare)
    for (const Node* in : ir::operands(*n))
      if (in) return in->dtype;
  return n->dtype;
}

class Walker {
 public:
  Walker(Walk& w, const ir::TraceGuard& guard, bool waits) : w_(w), guard_(guard), waits_(waits) {
    w_.nodes.clear();
    w_.uses.clear();
    w_.leaves.clear();
    w_.slots.clear();
    w_.slot_uses.clear();
    w_.slot_lines.clear();
    w_.starts.clear();
    w_.updated.clear();
    w_.donatable.clear();
    w_.large.clear();
    w_.reusable.clear();
    w_.lost = false;
    w_.roots.clear();
    w_.words.clear();
    w_.stack.clear();
    w_.foreign.clear();
  }

  Walked run(std::span<Node* const> roots, std::uint64_t salt) {
    push(salt);
    for (Node* root : roots) {
      if (!visit(root)) return claimed_ ? Walked::Claimed : Walked::Foreign;
      w_.roots.push_back(w_.position(root));
    }
    if (overwritten_) [[unlikely]]
      return Walked::Claimed;
    for (std::uint32_t r : w_.roots) push(r);
    // Which nodes handles outside the trace refer to. Leaves do not count: they are memory already.
    std::uint64_t bits = 0;
    const std::size_t n = w_.nodes.size();
    for (std::size_t i = 0; i < n; ++i) {
      bits |= std::uint64_t{w_.nodes[i]->op != Op::leaf && w_.held(static_cast<std::uint32_t>(i))}
              << (i % 64);
      if (i % 64 == 63) {
        push(bits);
        bits = 0;
      }
    }
    push(bits);
    w_.stored.clear();
    w_.stored_for.clear();
    if (!w_.block && (passed_ || ir::any_learned())) [[unlikely]]
      choose_stored(w_, passed_);
    for (std::uint32_t i : w_.stored) push(kStored | i);
    if (!w_.updated.empty()) find_donatable();
    if (!w_.large.empty()) find_reusable();
    w_.key = hash128(std::span<const std::uint64_t>(w_.words));
    if (!w_.starts.empty()) resolve_positions(w_);
    return Walked::Done;
  }

 private:
  enum class Access { Own, ForeignLeaf, Refused };

  /// Nodes of covered traces are ours to read and mark. A leaf of another trace never changes again.
  Access access(const Node* n) const {
    if (guard_.covers(n->home)) return Access::Own;
    return ir::op_now(n) == Op::leaf ? Access::ForeignLeaf : Access::Refused;
  }

  bool visit(Node* root) {
    if (!enter(root)) return false;
    while (!w_.stack.empty()) {
      auto& top = w_.stack.back();
      Node* n = top.node;
      const std::size_t depth = w_.stack.size();
      for (;;) {
        Node* in;
        if (n->n_in != ir::kManyOperands) [[likely]] {
          if (top.next >= n->n_in) break;
          in = n->in[top.next++];
        } else {
          if (top.next >= n->n_many) break;
          in = n->many[top.next++];
        }
        if (!in) continue;
        if (!enter(in)) return false;
        if (w_.stack.size() != depth) break;  // `in` comes first (and `top` may have moved)
      }
      if (w_.stack.size() != depth) continue;
      w_.stack.pop_back();
      if (w_.position(n) == Walk::kNone) number(n);
    }
    return true;
  }

  /// Numbers a leaf at once; puts anything else that is new on the stack. False when it may not be read.
  bool enter(Node* n) {
    const Access a = access(n);
    if (a == Access::Refused) return false;
    if (w_.position(n) != Walk::kNone) return true;
    if (a == Access::ForeignLeaf) {
      w_.foreign.push_back({n, static_cast<std::uint32_t>(w_.nodes.size())});
      leaf(n);
    } else if (n->op == Op::leaf) {
      n->set_mark(w_.nodes.size());
      leaf(n);
    } else if (n->claimed() && waits_) [[unlikely]] {
      claimed_ = true;
      return false;
    } else {
      passed_ |= n->passed();
      w_.stack.push_back({n, 0});
    }
    return true;
  }

  void push(std::uint64_t word) { w_.words.push_back(word); }
  void push(std::span<const std::int64_t> words) {
    w_.words.insert(w_.words.end(), words.begin(), words.end());
  }

  static std::uint64_t head(const Node* n) {
    return static_cast<std::uint64_t>(n->op) | std::uint64_t{static_cast<std::uint8_t>(n->dtype)} << 16 |
           std::uint64_t{n->rank} << 24 | std::uint64_t{n->n_in} << 32 | std::uint64_t{n->n_attrs} << 40;
  }

 public:
  /// Whether kernels may read its first bytes at once; a leaf of another device is copied before.
  static bool wide_access(const Walk& w, const Node* n) {
    if (w.wide == 0 || ir::device_code(n->buffer->device) != w.device) return false;
    return (reinterpret_cast<std::uintptr_t>(n->buffer->data) +
            static_cast<std::uint64_t>(n->offset * size_of(n->dtype))) %
               static_cast<std::uint64_t>(w.wide) ==
           0;
  }

 private:
  void leaf(Node* n) {
    if (const ir::BufferClaim claim = ir::claim_of(*n->buffer); claim != ir::BufferClaim::None) [[unlikely]] {
      overwritten_ = true;
      w_.lost |= claim == ir::BufferClaim::Lost;
    }
    ir::note_read(n);
    if (w_.reusing && !n->strides &&
        n->numel * size_of(n->dtype) >= plan::least_reused_bytes(n->buffer->device))
      w_.large.push_back(static_cast<std::uint32_t>(w_.nodes.size()));
    w_.leaves.push_back(static_cast<std::uint32_t>(w_.nodes.size()));
    w_.nodes.push_back(n);
    w_.uses.push_back(0);
    push(head(n) | std::uint64_t{n->strides != nullptr} << 48 | std::uint64_t{wide_access(w_, n)} << 49);
    push(n->dims());
    if (n->strides) push({n->strides, n->rank});
  }

  /// Pre: the operands are numbered.
  void number(Node* n) {
    n->set_mark(w_.nodes.size());
    w_.nodes.push_back(n);
    w_.uses.push_back(0);
    push(head(n));
    if (n->n_in == ir::kManyOperands) [[unlikely]] {
      push(n->n_many);
      for (std::size_t k = 0; k < n->n_many; ++k) push(operand(n, n->many[k], k));
    } else {
      std::uint64_t in[ir::kInlineOperands] = {Walk::kNone, Walk::kNone, Walk::kNone};
      for (std::size_t k = 0; k < n->n_in; ++k) in[k] = operand(n, n->in[k], k);
      if (n->op == Op::scalar) in[0] = kSlot | slot(n, n->dtype);
      push(in[0] | in[1] << 32);
      if (n->n_in > 2) push(in[2]);
    }
    if (n->op >= kFirstElementwise) return;  // shape and type follow from the operands
    push(n->dims());
    if (n->op == Op::pad || n->op == Op::update_at) note_update(n->in[1]);
    if (n->op == Op::scatter) note_update(n->in[0]);
    if (n->op == Op::pad) push(zero_fill(n));
    if (n->op == Op::slice || n->op == Op::pad) return box(n);
    push(n->attr64);
    if (n->n_attrs) push({n->attrs, n->n_attrs});
  }

  /// What the key has of operand k, which is x: its number, or its slot. Inlined: each node calls it.
  [[gnu::always_inline]] std::uint64_t operand(const Node* n, const Node* x, std::size_t k) {
    if (!x) return kSlot | slot(n, immediate_dtype(n, k));
    const std::uint32_t i = w_.position(x);
    ++w_.uses[i];
    return i;
  }

  /// Notes a leaf that is updated, where it is large enough to be written in place.
  void note_update(const Node* x) {
    if (w_.donating < 0 || x == nullptr || x->op != Op::leaf || x->strides != nullptr) return;
    if (x->numel * size_of(x->dtype) >= plan::donated_bytes.load(std::memory_order_relaxed))
      w_.updated.push_back(w_.position(x));
  }

  /// A leaf is the evaluation's own if only nodes of the walk refer to it, and only it to memory that may be
  /// written. Who holds no reference gets none: the walk's nodes are locked, and those that handles keep are
  /// claimed (api/claims.h).
  void find_donatable() {
    for (std::uint32_t i : w_.updated) {
      push(kUpdated | i | std::uint64_t{own(i)} << 32);
      if (own(i)) w_.donatable.push_back(i);
    }
  }

  bool own(std::uint32_t leaf) const {
    const ir::Buffer& b = *w_.nodes[leaf]->buffer;
    return !w_.held(leaf) && b.refs.load(std::memory_order_acquire) == 1 && b.writable &&
           ir::device_code(b.device) == w_.donating;
  }

  /// A result that takes a leaf's memory keeps all of its buffer alive, and is read as what a plan allocates.
  void find_reusable() {
    for (std::uint32_t i : w_.large) {
      const Node* x = w_.nodes[i];
      const auto bytes = static_cast<std::uint64_t>(x->numel * size_of(x->dtype));
      const bool reusable = own(i) && x->offset == 0 && x->buffer->bytes <= 2 * bytes &&
                            reinterpret_cast<std::uintptr_t>(x->buffer->data) % kResultAlignment == 0;
      push(kLarge | i | std::uint64_t{reusable} << 32);
      if (reusable) w_.reusable.push_back(i);
    }
  }

  /// The steps of a slice or pad, and its starts, which positions.h decides about. An axis that is covered
  /// has one start only.
  void box(const Node* n) {
    const bool slice = n->op == Op::slice;
    const Node *small = slice ? n : n->in[0], *big = slice ? n->in[0] : n;
    const auto position = static_cast<std::uint32_t>(w_.nodes.size() - 1);
    const auto box = ir::attributes<ir::Box>(*n);
    for (std::uint32_t a = 0; a < n->rank; ++a) {
      const std::int64_t first = box.first(a), step = box.step(a), count = small->dims()[a];
      push(static_cast<std::uint64_t>(step));
      if (small->numel == 0) continue;  // shows nothing
      const std::int64_t reach = (count - 1) * step, span = (reach < 0 ? -reach : reach) + 1;
      if (span == big->dims()[a]) continue;
      const std::int64_t lowest = reach < 0 ? first + reach : first,
                         factor = wanted_factor(n, slice ? big : small, a);
      w_.starts.push_back({lowest, factor, n->loc, position, a, Walk::kNone});
    }
  }

  /// What a start must be a multiple of for wide accesses of the device's kernels.
  std::int64_t wanted_factor(const Node* n, const Node* memory, std::uint32_t axis) const {
    if (w_.wide == 0 || n->device != w_.device) return 1;
    std::int64_t pitch = size_of(n->dtype);
    for (std::uint32_t a = axis + 1; a < memory->rank; ++a) pitch *= memory->dims()[a];
    return w_.wide / std::min<std::int64_t>(w_.wide, pitch & -pitch);
  }

  /// The slot of a node's scalar. Scalars are never merged by value alone, which would make plans of
  /// coincidences; but the same operation on the same source line with the same value as the first or the
  /// latest time (a constant inside a function called twice, a loop's factor) is one slot. Which ones are one
  /// is part of the plan key.
  std::uint32_t slot(const Node* n, DType dtype) {
    constexpr std::size_t kLines = 32;
    Walk::SlotLine* line = nullptr;
    for (Walk::SlotLine& l : w_.slot_lines)
      if (std::memcmp(&l.loc, &n->loc, sizeof l.loc) == 0 && l.op == n->op && l.dtype == dtype) {
        line = &l;
        break;
      }
    if (line && !w_.block)
      for (std::uint32_t s : {line->last, line->first})
        if (w_.slots[s] == n->imm) {
          w_.slot_uses.push_back(s);
          return s;
        }
    const auto fresh = static_cast<std::uint32_t>(w_.slots.size());
    w_.slots.push_back(n->imm);
    w_.slot_uses.push_back(fresh);
    if (line)
      line->last = fresh;
    else if (w_.slot_lines.size() < kLines)
      w_.slot_lines.push_back({n->loc, n->op, dtype, fresh, fresh});
    return fresh;
  }

  Walk& w_;
  const ir::TraceGuard& guard_;
  bool waits_;
  bool overwritten_ = false;  // a leaf's memory is being overwritten, or was in vain
  bool claimed_ = false;
  bool passed_ = false;  // whether an earlier evaluation passed a node of the trace
};

}  // namespace

Walked walk_trace(std::span<Node* const> roots, const ir::TraceGuard& guard, std::uint64_t salt, bool waits,
                  Walk& walk) {
  return Walker(walk, guard, waits).run(roots, salt);
}

static ir::NodeId add_scalar(ir::Graph& g, std::uint32_t slot, DType dtype, SourceLocation loc) {
  ir::GraphNode s;
  s.op = Op::scalar;
  s.dtype = dtype;
  s.loc = loc;
  s.arg = static_cast<std::int32_t>(slot);
  if (g.slots.size() <= slot) g.slots.resize(slot + 1);
  g.slots[slot] = dtype;
  g.nodes.push_back(s);
  return static_cast<ir::NodeId>(g.nodes.size() - 1);
}

/// Makes a leaf's argument of the graph.
static std::int32_t add_argument(ir::Graph& g, const Walk& w, const Node& n, ir::Dims dims) {
  ir::ArgInfo arg;
  arg.dtype = n.dtype;
  arg.dims = dims;
  arg.alignment = static_cast<std::uint32_t>(Walker::wide_access(w, &n) ? w.wide : size_of(n.dtype));
  if (n.strides) {
    arg.strides = g.keep({n.strides, n.rank});
  } else {
    std::int64_t strides[kMaxRank];
    std::int64_t s = 1;
    for (int a = n.rank; a-- > 0;) {
      strides[a] = s;
      s *= dims[static_cast<std::size_t>(a)];
    }
    arg.strides = g.keep({strides, n.rank});
  }
  g.args.push_back(arg);
  return static_cast<std::int32_t>(g.args.size() - 1);
}

ir::Graph build_graph(const Walk& w, std::vector<ir::NodeId>& ids, bool as_recorded) {
  ir::Graph g;
  g.nodes.reserve(w.nodes.size() * 2);
  ids.assign(w.nodes.size(), ir::kNoNode);
  std::vector<ir::NodeId> node_of_slot(w.slots.size(), ir::kNoNode);
  std::vector<ir::NodeId> in;
  std::size_t use = 0, start = 0;
  auto scalar_of = [&](std::uint32_t slot, DType dtype, SourceLocation loc) {
    ir::NodeId& node = node_of_slot[slot];
    return node == ir::kNoNode ? node = add_scalar(g, slot, dtype, loc) : node;
  };
  auto next_scalar = [&](DType dtype, SourceLocation loc) {
    return scalar_of(w.slot_uses[use++], dtype, loc);
  };
  for (std::size_t i = 0; i < w.nodes.size(); ++i) {
    const Node* n = w.nodes[i];
    if (n->op == Op::scalar) {
      ids[i] = next_scalar(n->dtype, n->loc);
      g[ids[i]].held |= w.held(static_cast<std::uint32_t>(i));
      continue;
    }
    ir::GraphNode x;
    x.op = n->op;
    x.dtype = n->dtype;
    x.dims = g.keep(n->dims());
    x.numel = n->numel;
    x.loc = n->loc;
    if (n->op == Op::leaf) {
      x.arg = add_argument(g, w, *n, x.dims);
    } else {
      x.attr64 = n->op == Op::pad ? zero_fill(n) : n->attr64;
      if (n->n_attrs) x.attrs = g.keep({n->attrs, n->n_attrs});
      x.held = w.held(static_cast<std::uint32_t>(i));
      in.clear();
      for (const Node* operand : ir::operands(*n))
        in.push_back(operand ? ids[w.position(operand)] : next_scalar(immediate_dtype(n, in.size()), n->loc));
      x.in.assign(in);
    }
    const std::size_t first = start;
    bool varies = false;
    for (; start < w.starts.size() && w.starts[start].node == i; ++start)
      varies |= w.starts[start].slot != Walk::kNone && !as_recorded;
    if (varies) {
      ids[i] = add_at_positions(g, x, std::span(w.starts).subspan(first, start - first),
                                [&](const Walk::Start& s) { return scalar_of(s.slot, DType::Int64, s.loc); });
      continue;
    }
    ids[i] = static_cast<ir::NodeId>(g.nodes.size());
    g.nodes.push_back(std::move(x));
  }
  for (std::uint32_t r : w.roots) g.roots.push_back(ids[r]);
  for (std::uint32_t s : w.stored) g.roots.push_back(ids[s]);
  return g;
}

}  // namespace kiln::engine
