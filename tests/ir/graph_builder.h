// Builds ir graphs by hand for tests, with the memory of their arguments.
#pragma once

#include "ir/graph.h"
#include "oracle/interpret.h"

#include <cstring>
#include <initializer_list>
#include <vector>

namespace kiln::ir {

class GraphBuilder {
 public:
  using Extents = std::vector<std::int64_t>;

  Graph graph;

  /// A row-major argument with values 0.5, -1.5, 2.5, … (integers: 1, -2, 3, …; bool: true, false, …).
  NodeId leaf(DType type, const Extents& dims) {
    GraphNode n = node(Op::leaf, type, dims);
    n.arg = static_cast<std::int32_t>(graph.args.size());
    Extents strides(dims.size(), 1);
    for (std::size_t a = dims.size(); a-- > 1;) strides[a - 1] = strides[a] * dims[a];
    graph.args.push_back({type, n.dims, graph.keep(strides), 64});
    arguments_.push_back({type, n.numel, {}});
    return push(n);
  }
  NodeId scalar(DType type, std::uint64_t bits) {
    GraphNode n = node(Op::scalar, type, {});
    n.arg = static_cast<std::int32_t>(graph.slots.size());
    graph.slots.push_back(type);
    slots.push_back(bits);
    return push(n);
  }
  NodeId constant(DType type, std::uint64_t bits, const Extents& dims = {}) {
    GraphNode n = node(Op::constant, type, dims);
    set_attributes(n, Constant{bits});
    return push(n);
  }
  NodeId iota(DType type, const Extents& dims, std::uint64_t axis) {
    GraphNode n = node(Op::iota, type, dims);
    set_attributes(n, Iota{axis});
    return push(n);
  }
  /// An elementwise op with the extents of its operand of most axes and elements.
  NodeId op(Op op, std::initializer_list<NodeId> in) {
    NodeId shaped = *in.begin();
    for (NodeId i : in)
      if (graph[i].dims.size() > graph[shaped].dims.size() || graph[i].numel > graph[shaped].numel)
        shaped = i;
    const TypeRule rule = info(op).rule;
    const bool truth = rule == TypeRule::Compare || rule == TypeRule::Logical;
    const bool word = rule == TypeRule::Word32;
    return wide(op,
                truth  ? DType::Bool
                : word ? DType::UInt32
                       : graph[*(in.end() - 1)].dtype,
                extents(shaped), in);
  }
  NodeId cast(NodeId x, DType type) { return wide(Op::cast, type, extents(x), {x}); }
  NodeId reshape(NodeId x, const Extents& dims) { return wide(Op::reshape, graph[x].dtype, dims, {x}); }
  NodeId broadcast(NodeId x, const Extents& dims) { return wide(Op::broadcast, graph[x].dtype, dims, {x}); }
  NodeId permute(NodeId x, const Extents& axes) {
    Extents dims;
    Permute shown;
    for (std::size_t a = 0; a < axes.size(); ++a) {
      dims.push_back(graph[x].dims[static_cast<std::size_t>(axes[a])]);
      shown.show(a, static_cast<std::size_t>(axes[a]));
    }
    return wide(Op::permute, graph[x].dtype, dims, {x}, shown);
  }
  /// box: first0, step0, first1, step1, …
  NodeId slice(NodeId x, const Extents& dims, const Extents& box) {
    return wide(Op::slice, graph[x].dtype, dims, {x}, Box::from({0, box}));
  }
  NodeId pad(NodeId body, NodeId fill, const Extents& dims, const Extents& box) {
    return wide(Op::pad, graph[body].dtype, dims, {body, fill}, Box::from({0, box}));
  }
  NodeId reduce(Op op, NodeId x, std::uint64_t mask) {
    Extents dims = extents(x);
    for (std::size_t a = 0; a < dims.size(); ++a)
      if ((mask >> a) & 1) dims[a] = 1;
    return wide(op, has(op, POSITION) ? DType::Int64 : graph[x].dtype, dims, {x}, Reduce{mask});
  }
  NodeId scan(Op op, NodeId x, const Scan& how) { return wide(op, graph[x].dtype, extents(x), {x}, how); }
  NodeId matmul(NodeId x, NodeId y) {
    Extents dims = extents(x);
    dims.back() = graph[y].dims.back();
    return wide(Op::matmul, graph[x].dtype, dims, {x, y});
  }
  void root(NodeId id) {
    graph[id].held = true;
    graph.roots.push_back(id);
  }

  /// Any node, all fields given.
  template <class A = Nothing>
  NodeId wide(Op op, DType type, const Extents& dims, std::initializer_list<NodeId> in,
              const A& attributes = {}) {
    GraphNode n = node(op, type, dims);
    set_attributes(graph, n, attributes);
    for (NodeId i : in) n.in[n.n_in++] = i;
    return push(n);
  }
  Extents extents(NodeId id) const { return {graph[id].dims.begin(), graph[id].dims.end()}; }

  /// Values of another graph over this builder's arguments (of `graph` itself by default).
  std::vector<std::vector<std::byte>> values(const Graph& g) const {
    std::vector<ArgData> args;
    for (std::size_t i = 0; i < arguments_.size(); ++i) args.push_back({memory(i).data()});
    return interpret(g, args, slots);
  }
  std::vector<std::vector<std::byte>> values() const { return values(graph); }

  /// Memory of an argument; made when it is asked for, as a graph may only be lowered.
  std::vector<std::byte>& memory(std::size_t arg) {
    Argument& a = arguments_[arg];
    if (a.bytes.empty()) a.bytes = first_values(a.dtype, a.numel);
    return a.bytes;
  }
  const std::vector<std::byte>& memory(std::size_t arg) const {
    return const_cast<GraphBuilder*>(this)->memory(arg);
  }

  std::vector<std::uint64_t> slots;

 private:
  struct Argument {
    DType dtype;
    std::int64_t numel;
    std::vector<std::byte> bytes;
  };
  static std::vector<std::byte> first_values(DType type, std::int64_t numel) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(numel * size_of(type)) + 1);
    dispatch(type, [&]<class T>() {
      for (std::int64_t i = 0; i < numel; ++i) {
        const double magnitude = static_cast<double>(i % 50) + (is_float(type) ? 0.5 : 1.0);
        T value;
        if constexpr (std::is_same_v<T, bool>)
          value = i % 2 == 0;
        else
          value = static_cast<T>(static_cast<float>(i % 2 ? -magnitude : magnitude));
        std::memcpy(bytes.data() + i * size_of(type), &value, sizeof(T));
      }
    });
    return bytes;
  }
  GraphNode node(Op op, DType type, const Extents& dims) {
    GraphNode n;
    n.op = op;
    n.dtype = type;
    n.dims = graph.keep(dims);
    for (std::int64_t d : dims) n.numel *= d;
    return n;
  }
  NodeId push(const GraphNode& n) {
    graph.nodes.push_back(n);
    return graph.size() - 1;
  }

  std::vector<Argument> arguments_;
};

}  // namespace kiln::ir
