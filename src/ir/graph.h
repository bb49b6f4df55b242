// Graph: the planner's view of a trace. Nodes are numbered in topological order from the canonical walk, so
// two traces of the same structure give equal graphs whatever their addresses. Values (buffers, scalars) are
// not in it: leaves are arguments, scalars are slots.
#pragma once

#include "ir/attributes.h"
#include "ir/operands.h"

#include <kiln/shape.h>
#include <kiln/tensor.h>

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace kiln::ir {

struct GraphNode {
  Op op = Op::leaf;
  DType dtype = DType::Float32;
  bool held = false;  // a handle outside the trace refers to it (roots are held too)
  Operands in;
  std::int32_t arg = -1;  // leaf: index into Graph::args; scalar: slot index; pad, update_at, scatter: the
                          // argument whose memory it is written into (plan/donate.h)
  Dims dims;
  std::int64_t numel = 1;
  std::uint64_t attr64 = 0;  // attributes, as attributes.h stores them
  Dims attrs;
  SourceLocation loc;
};

inline Stored stored(const GraphNode& n) { return {n.attr64, n.attrs}; }

/// What is known of a leaf's memory when planning: everything here is part of the plan key.
struct ArgInfo {
  DType dtype;
  Dims dims;
  Dims strides;             // elements; always filled
  std::uint32_t alignment;  // largest power of two, at most 64, dividing the first element's address
};

struct Graph {
  std::vector<GraphNode> nodes;
  std::vector<ArgInfo> args;
  std::vector<DType> slots;   // dtype of each scalar slot
  std::vector<NodeId> roots;  // nodes whose values must be stored

  const GraphNode& operator[](NodeId id) const { return nodes[id]; }
  GraphNode& operator[](NodeId id) { return nodes[id]; }
  NodeId size() const { return static_cast<NodeId>(nodes.size()); }
  /// Copies extents into memory that lives as long as the graph.
  Dims keep(Dims dims);

 private:
  std::deque<std::vector<std::int64_t>> blocks_;
};

/// Gives a node attributes that fit its op. A list is kept by the graph; attributes without one need none.
template <class A>
void set_attributes(Graph& graph, GraphNode& n, const A& attributes) {
  if (!A::fits(n.op)) [[unlikely]]
    wrong_attributes(n.op);
  n.attr64 = attributes.word();
  n.attrs = {};
  if constexpr (HasList<A>) {
    std::int64_t list[kMostAttributeWords];
    attributes.write_list(list);
    n.attrs = graph.keep({list, attributes.list_size()});
  }
}
template <class A>
  requires(!HasList<A>)
void set_attributes(GraphNode& n, const A& attributes) {
  if (!A::fits(n.op)) [[unlikely]]
    wrong_attributes(n.op);
  n.attr64 = attributes.word();
  n.attrs = {};
}

/// One line a node: "%3 f32(4, 8) = add %1 %2   main.cpp:12".
std::string print(const Graph& graph);
/// Throws InternalError when a shape, dtype, operand count or order is wrong.
void verify(const Graph& graph);

}  // namespace kiln::ir
