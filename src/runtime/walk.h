// The canonical walk: from roots to leaves, numbering nodes in an order that depends on structure only, and giving at
// once the plan key, the argument list and the scalar values. This is the hot path of every evaluation.
#pragma once

#include "ir/graph.h"
#include "ir/node.h"
#include "ir/trace_locks.h"
#include "support/hash128.h"

#include <span>
#include <vector>

namespace kiln::runtime {

struct Walk {
  std::vector<ir::Node*> nodes;          // post-order; position = graph node id before immediates are added
  std::vector<std::uint32_t> uses;       // references from inside the trace
  std::vector<std::uint32_t> leaves;     // positions of leaves, in argument order
  std::vector<std::uint64_t> slots;      // scalar values, in slot order
  std::vector<std::uint32_t> slot_uses;  // the slot of each scalar operand met, in walk order
  std::vector<std::uint32_t> roots;      // positions of the requested nodes
  Hash128 key;
  bool merge_scalars = true;             // before the walk: whether equal scalars of a line are one slot

  bool held(std::uint32_t i) const { return nodes[i]->refs.load(std::memory_order_relaxed) > uses[i]; }

  /// Position of a node that this walk has numbered.
  std::uint32_t position(const ir::Node* node) const {
    if (node->mark < nodes.size() && nodes[node->mark] == node) return node->mark;
    for (const Foreign& f : foreign)
      if (f.node == node) return f.position;
    return kNone;
  }
  static constexpr std::uint32_t kNone = 0xffffffffu;

  // Scratch, kept between walks.
  struct Foreign {
    const ir::Node* node;  // a leaf of another thread's trace, read without its lock (leaves never change)
    std::uint32_t position;
  };
  std::vector<Foreign> foreign;
  struct SlotLine {
    SourceLocation loc;
    ir::Op op;
    DType dtype;
    std::uint32_t first, last;  // slots
  };
  std::vector<SlotLine> slot_lines;
  std::vector<std::uint64_t> words;
  struct FrameEntry {
    ir::Node* node;
    std::uint32_t next;
  };
  std::vector<FrameEntry> stack;
};

/// Fills `walk` from the roots. Returns false when a node that may change belongs to a trace that `guard` does not cover
/// (the caller widens the guard and walks again). Caller holds the guard.
bool walk_trace(std::span<ir::Node* const> roots, const ir::TraceGuard& guard, std::uint64_t salt, Walk& walk);

/// The graph of a finished walk. ids[i] is the graph node of walk position i.
ir::Graph build_graph(const Walk& walk, std::vector<ir::NodeId>& ids);

}  // namespace kiln::runtime
