// Builder: adds nodes to a graph, with the dtypes and extents that ir::infer gives them. For passes and
// tests; a walk copies what was recorded instead.
#pragma once

#include "ir/graph.h"
#include "ir/infer.h"

#include <type_traits>
#include <utility>
#include <vector>

namespace kiln::ir {

class Builder {
 public:
  explicit Builder(Graph& graph) : g_(graph) {}

  SourceLocation loc{};  // of nodes added from here on

  /// A node as it is.
  NodeId push(GraphNode n);

  /// A node of no handle and no argument. InternalError if operands, attributes or stated extents do not fit
  /// the op.
  template <class A = Nothing>
  NodeId add(Op op, Operands in, const A& attributes = {}, const Stated& stated = {}) {
    GraphNode n;
    n.loc = loc;
    become(n, op, std::move(in), attributes, stated);
    return push(std::move(n));
  }

  /// Makes a node another op whose result has the same dtype and extents.
  template <class A = Nothing>
  void redefine(GraphNode& n, Op op, Operands in, const A& attributes = {}) {
    const Type same{n.dtype, n.dims};
    become(n, op, std::move(in), attributes, {n.dtype, n.dims});
    check_same(n, same);
  }

 private:
  template <class A>
  void become(GraphNode& n, Op op, Operands in, const A& attributes, const Stated& stated) {
    n.op = op;
    n.in = std::move(in);
    if (std::is_same_v<A, Nothing> && Cast::fits(op))
      set_attributes(g_, n, Cast{});  // of which nothing need be said
    else
      set_attributes(g_, n, attributes);
    complete(n, stated);
  }
  /// Sets the dtype and extents inferred.
  void complete(GraphNode& n, const Stated& stated);
  static void check_same(const GraphNode& n, const Type& type);

  Graph& g_;
  std::vector<Type> types_;  // of a node's operands
};

}  // namespace kiln::ir
