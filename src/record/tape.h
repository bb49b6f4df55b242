// Edges that evaluation would drop. An evaluated node becomes a leaf and forgets what it was made of, but a
// derivative has to go back through it. While a tape is open (a function that somebody differentiates is
// running), an evaluation keeps the edges of each value that depends on a primal of an open tape, whichever
// threads record and evaluate it.
//
// Recording knows nothing of tapes and costs nothing for them. Whether a node depends on a primal is found
// out when it is published, by following its operands.
#pragma once

#include "record/node.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace kiln::ir {

/// One recorded operation: what a node is made of.
struct Edge {
  Op op = Op::leaf;
  SourceLocation loc;
  std::uint64_t imm = 0;
  std::uint64_t attr64 = 0;
  std::vector<std::int64_t> attrs;
  std::vector<NodeRef> in;  // null: the immediate
};
inline Stored stored(const Edge& e) { return {e.attr64, e.attrs}; }

/// Of a pending node. The caller holds its trace lock.
Edge edge_of(const Node& node);
/// The edge of a leaf that was computed while a tape was open and depends on one of its primals; else null.
std::shared_ptr<const Edge> kept_edge(const Node& leaf);

/// A call of a function whose derivative somebody says: its results depend on its operands, and how is for
/// `rule` to say (grad/call_rule.h).
struct Call {
  std::vector<NodeRef> in, out;
  std::shared_ptr<const void> rule;
};
/// Notes a call until every tape is closed that is open now.
void keep_call(std::shared_ptr<const Call> call);
/// The call that the node is a result of; null: it is none's.
std::shared_ptr<const Call> kept_call(const Node& result);

/// Open while it lives. Edges are kept until every tape is closed that was open when they were.
class OpenTape {
 public:
  OpenTape();
  ~OpenTape();
  OpenTape(const OpenTape&) = delete;
  /// From here on, values that depend on this node keep their edges. The tape holds it.
  void add_primal(NodeRef primal);

  static bool any() { return count_.load(std::memory_order_acquire) != 0; }

 private:
  static std::atomic<int> count_;
  std::uint64_t opened_;  // when: the number of the first edge after
  std::vector<NodeRef> primals_;
};

/// Keeps the edges of nodes that are about to become leaves, where an open tape needs them. Lives while the
/// caller holds one trace guard that covers what the nodes are made of.
class EdgeKeeper {
 public:
  /// The number of its edge, or 0.
  std::uint64_t keep(const Node& node) { return OpenTape::any() ? keep_if_needed(node) : 0; }

 private:
  std::uint64_t keep_if_needed(const Node& node);
  std::unordered_map<const Node*, bool> depends_;  // on a primal
};

}  // namespace kiln::ir
