// Builds ir graphs by hand for tests, with the memory of their arguments.
#pragma once

#include "ir/builder.h"
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
  NodeId op(Op op, std::initializer_list<NodeId> in) { return add(op, in); }
  NodeId cast(NodeId x, DType type) { return add(Op::cast, {x}, {}, {.dtype = type}); }
  NodeId reshape(NodeId x, const Extents& dims) { return add(Op::reshape, {x}, {}, {.dims = dims}); }
  NodeId broadcast(NodeId x, const Extents& dims) { return add(Op::broadcast, {x}, {}, {.dims = dims}); }
  NodeId permute(NodeId x, const Extents& axes) {
    Permute shown;
    for (std::size_t a = 0; a < axes.size(); ++a) shown.show(a, static_cast<std::size_t>(axes[a]));
    return add(Op::permute, {x}, shown);
  }
  /// box: first0, step0, first1, step1, …
  NodeId slice(NodeId x, const Extents& dims, const Extents& box) {
    return add(Op::slice, {x}, Box::from({0, box}), {.dims = dims});
  }
  NodeId pad(NodeId body, NodeId fill, const Extents& dims, const Extents& box) {
    return add(Op::pad, {body, fill}, Box::from({0, box}), {.dims = dims});
  }
  NodeId reduce(Op op, NodeId x, std::uint64_t mask) { return add(op, {x}, Reduce{mask}); }
  NodeId scan(Op op, NodeId x, const Scan& how) { return add(op, {x}, how); }
  NodeId matmul(NodeId x, NodeId y) { return add(Op::matmul, {x, y}); }
  /// Any op of the graph's nodes.
  template <class A = Nothing>
  NodeId add(Op op, std::initializer_list<NodeId> in, const A& attributes = {}, const Stated& stated = {}) {
    return Builder(graph).add(op, in, attributes, stated);
  }
  void root(NodeId id) {
    graph[id].held = true;
    graph.roots.push_back(id);
  }

  /// Any node, all fields given, whether they fit or not.
  template <class A = Nothing>
  NodeId wide(Op op, DType type, const Extents& dims, std::initializer_list<NodeId> in,
              const A& attributes = {}) {
    GraphNode n = node(op, type, dims);
    set_attributes(graph, n, attributes);
    n.in = in;
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
        // Of no short period, so that an element is told from those a row or a plane away.
        const double magnitude =
            static_cast<double>((i + i / 50 * 7 + i / 2500 * 3) % 50) + (is_float(type) ? 0.5 : 1.0);
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
