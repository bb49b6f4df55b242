// Loops in a graph. A loop is a node whose operands are its states, with their next values, and its
// condition; what it repeats is not a graph of its own but every node that depends on its states. Such a node
// belongs to the loop: it has one value in each iteration and none outside. Operands that do not depend on
// the states are computed once.
//
// A loop may keep a value of each iteration (a yield), which need not depend on the states; a loop_stack
// shows them all.
//
// A state without a first value belongs to no loop. It stands for one example of an argument while a function
// is recorded that is to be computed for many (kiln/vmap.h), and has no value.
//
// Meaning: while the condition holds, all states take their next values together. The condition broadcasts to
// the states; an element's states stop where its condition is false, and the loop ends when it is false
// everywhere.
#pragma once

#include "ir/graph.h"

namespace kiln::ir {

struct LoopParts {
  NodeId node = kNoNode;
  NodeId parent = kNoNode;  // the innermost loop around it
  NodeId condition = kNoNode;
  std::vector<NodeId> states, nexts;  // from the last to the first
  std::vector<NodeId> yields;         // from the last to the first
  std::int64_t count = 0;             // iterations, where the first of `states` counts them
  bool counts() const { return count > 0; }
  std::vector<NodeId> body;  // nodes that belong to this loop or to loops inside it, ascending
};

struct Loops {
  std::vector<NodeId>
      owner;  // per node: the innermost loop that it belongs to, or kNoNode. Empty: no loop at all
  std::vector<LoopParts> loops;  // ascending by node

  bool any() const { return !loops.empty(); }
  NodeId owner_of(NodeId id) const { return owner.empty() ? kNoNode : owner[id]; }
  const LoopParts& of(NodeId loop) const;
  /// The parts of a loop_result's or loop_stack's loop.
  const LoopParts& of_result(const Graph& graph, NodeId result) const { return of(graph[result].in[0]); }
};

/// Throws UserError when a value that a loop's body made is wanted outside the loop, or one that depends on a
/// state of no loop.
Loops find_loops(const Graph& graph);

}  // namespace kiln::ir
