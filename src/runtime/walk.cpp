#include "runtime/walk.h"

#include "support/check.h"

#include <algorithm>

namespace kiln::runtime {
namespace {

using ir::Node;
using ir::Op;

constexpr std::uint32_t kNew = 0xffffffffu;

class Walker {
 public:
  Walker(Walk& w, const ir::TraceGuard& guard) : w_(w), guard_(guard) {
    w_.nodes.clear();
    w_.uses.clear();
    w_.leaves.clear();
    w_.slots.clear();
    w_.roots.clear();
    w_.words.clear();
    w_.stack.clear();
    if (w_.table.empty()) w_.table.resize(64);
    if (++w_.stamp == 0) {
      std::fill(w_.table.begin(), w_.table.end(), Walk::Cell{});
      w_.stamp = 1;
    }
  }

  bool run(std::span<Node* const> roots, std::uint64_t salt) {
    w_.words.push_back(salt);
    for (Node* root : roots) {
      if (!visit(root)) return false;
      w_.roots.push_back(find(root)->index);
    }
    for (std::uint32_t r : w_.roots) w_.words.push_back(r);
    // Which nodes handles outside the trace refer to. Leaves do not count: they are memory already.
    std::uint64_t bits = 0;
    const std::size_t n = w_.nodes.size();
    for (std::size_t i = 0; i < n; ++i) {
      bits |= std::uint64_t{w_.nodes[i]->op != Op::leaf && w_.held(static_cast<std::uint32_t>(i))} << (i % 64);
      if (i % 64 == 63) {
        w_.words.push_back(bits);
        bits = 0;
      }
    }
    w_.words.push_back(bits);
    w_.key = hash128(std::span<const std::uint64_t>(w_.words));
    return true;
  }

 private:
  static std::uint64_t mix(const Node* n) {
    return (reinterpret_cast<std::uint64_t>(n) >> 7) * 0x9e3779b97f4a7c15u >> 32;
  }

  Walk::Cell* find(Node* n) {
    const std::size_t mask = w_.table.size() - 1;
    for (std::size_t i = mix(n) & mask;; i = (i + 1) & mask) {
      Walk::Cell& c = w_.table[i];
      if (c.stamp != w_.stamp || c.node == n) return &c;
    }
  }

  void grow() {
    std::vector<Walk::Cell> old(w_.table.size() * 2);
    old.swap(w_.table);
    for (const Walk::Cell& c : old)
      if (c.stamp == w_.stamp) *find(c.node) = c;
  }

  /// Numbers everything below `root`. Returns false at a node the guard does not cover.
  bool visit(Node* root) {
    if (find(root)->stamp == w_.stamp) return true;
    if (!guard_.covers(root->home)) return false;
    w_.stack.push_back({root, 0});
    while (!w_.stack.empty()) {
      auto& top = w_.stack.back();
      Node* n = top.node;
      Node* down = nullptr;
      while (top.next < n->n_in) {
        Node* in = n->in[top.next++];
        if (!in) continue;
        if (find(in)->stamp != w_.stamp) {
          down = in;
          break;
        }
      }
      if (down) {
        if (!guard_.covers(down->home)) return false;
        w_.stack.push_back({down, 0});
        continue;
      }
      w_.stack.pop_back();
      number(n);
    }
    return true;
  }

  void number(Node* n) {
    Walk::Cell* cell = find(n);
    if (cell->stamp == w_.stamp) return;  // reached twice before it was numbered
    const auto index = static_cast<std::uint32_t>(w_.nodes.size());
    *cell = {n, index, w_.stamp};
    w_.nodes.push_back(n);
    w_.uses.push_back(0);
    if (w_.nodes.size() * 2 > w_.table.size()) grow();
    emit(n, index);
  }

  void emit(Node* n, std::uint32_t index) {
    auto& words = w_.words;
    std::uint64_t head = static_cast<std::uint64_t>(n->op) | std::uint64_t{static_cast<std::uint8_t>(n->dtype)} << 16 |
                         std::uint64_t{n->rank} << 24 | std::uint64_t{n->n_in} << 32 | std::uint64_t{n->n_attrs} << 40;
    if (n->op == Op::leaf) {
      w_.leaves.push_back(index);
      words.push_back(head | std::uint64_t{n->strides != nullptr} << 48);
      words.insert(words.end(), n->dims().begin(), n->dims().end());
      if (n->strides) words.insert(words.end(), n->strides, n->strides + n->rank);
      return;
    }
    std::uint64_t in[3] = {kNew, kNew, kNew};
    for (int k = 0; k < n->n_in; ++k) {
      if (Node* x = n->in[k]) {
        const std::uint32_t i = find(x)->index;
        ++w_.uses[i];
        in[k] = i;
      } else {
        w_.slots.push_back(n->imm);
      }
    }
    if (n->op == Op::scalar) w_.slots.push_back(n->imm);
    words.push_back(head);
    words.push_back(in[0] | in[1] << 32);
    if (n->n_in > 2) words.push_back(in[2]);
    if (ir::info(n->op).kind == ir::OpKind::Elementwise) return;  // shape and type follow from the operands
    words.insert(words.end(), n->dims().begin(), n->dims().end());
    words.push_back(n->attr64);
    if (n->n_attrs) words.insert(words.end(), n->attrs, n->attrs + n->n_attrs);
  }

  Walk& w_;
  const ir::TraceGuard& guard_;
};

/// dtype of the immediate operand k of a node.
DType immediate_dtype(const Node* n, int k) {
  const ir::OpInfo& info = ir::info(n->op);
  if (info.rule == ir::TypeRule::Logical || (info.rule == ir::TypeRule::Select && k == 0)) return DType::Bool;
  if (info.rule == ir::TypeRule::Compare)
    for (int i = 0; i < n->n_in; ++i)
      if (n->in[i]) return n->in[i]->dtype;
  return n->dtype;
}

}  // namespace

bool walk_trace(std::span<Node* const> roots, const ir::TraceGuard& guard, std::uint64_t salt, Walk& walk) {
  return Walker(walk, guard).run(roots, salt);
}

ir::Graph build_graph(const Walk& w, std::vector<ir::NodeId>& ids) {
  ir::Graph g;
  g.nodes.reserve(w.nodes.size() * 2);
  ids.assign(w.nodes.size(), ir::kNoNode);
  auto add_scalar = [&](DType dtype, SourceLocation loc) {
    ir::GraphNode s;
    s.op = Op::scalar;
    s.dtype = dtype;
    s.loc = loc;
    s.arg = static_cast<std::int32_t>(g.slots.size());
    g.slots.push_back(dtype);
    g.nodes.push_back(s);
    return static_cast<ir::NodeId>(g.nodes.size() - 1);
  };
  Walk::Cell const* const table = w.table.data();
  const std::size_t mask = w.table.size() - 1;
  auto position = [&](const Node* n) {
    for (std::size_t i = ((reinterpret_cast<std::uint64_t>(n) >> 7) * 0x9e3779b97f4a7c15u >> 32) & mask;; i = (i + 1) & mask)
      if (table[i].node == n && table[i].stamp == w.stamp) return table[i].index;
  };
  for (std::size_t i = 0; i < w.nodes.size(); ++i) {
    const Node* n = w.nodes[i];
    if (n->op == Op::scalar) {
      ids[i] = add_scalar(n->dtype, n->loc);
      g.nodes.back().held = w.held(static_cast<std::uint32_t>(i));
      continue;
    }
    ir::GraphNode x;
    x.op = n->op;
    x.dtype = n->dtype;
    x.dims = g.keep(n->dims());
    x.numel = n->numel;
    x.loc = n->loc;
    if (n->op == Op::leaf) {
      ir::ArgInfo arg;
      arg.dtype = n->dtype;
      arg.dims = x.dims;
      arg.alignment = static_cast<std::uint32_t>(size_of(n->dtype));
      if (n->strides) {
        arg.strides = g.keep({n->strides, n->rank});
      } else {
        std::int64_t strides[kMaxRank];
        std::int64_t s = 1;
        for (int a = n->rank; a-- > 0;) {
          strides[a] = s;
          s *= x.dims[static_cast<std::size_t>(a)];
        }
        arg.strides = g.keep({strides, n->rank});
      }
      x.arg = static_cast<std::int32_t>(g.args.size());
      g.args.push_back(arg);
    } else {
      x.n_in = n->n_in;
      x.attr64 = n->attr64;
      if (n->n_attrs) x.attrs = g.keep({n->attrs, n->n_attrs});
      x.held = w.held(static_cast<std::uint32_t>(i));
      for (int k = 0; k < n->n_in; ++k)
        x.in[k] = n->in[k] ? ids[position(n->in[k])] : add_scalar(immediate_dtype(n, k), n->loc);
    }
    ids[i] = static_cast<ir::NodeId>(g.nodes.size());
    g.nodes.push_back(x);
  }
  for (std::uint32_t r : w.roots) g.roots.push_back(ids[r]);
  return g;
}

}  // namespace kiln::runtime
