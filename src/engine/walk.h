// The canonical walk: from roots to leaves, numbering nodes in an order that depends on structure only, and
// giving at once the plan key, the argument list and the scalar values. This is the hot path of every
// evaluation.
#pragma once

#include "ir/graph.h"
#include "record/node.h"
#include "record/trace_locks.h"
#include "support/hash128.h"

#include <span>
#include <vector>

namespace kiln::engine {

/// Memory that a result takes begins at a multiple of it.
inline constexpr std::uintptr_t kResultAlignment = 64;

struct Walk {
  std::vector<ir::Node*> nodes;          // post-order; position = graph node id before immediates are added
  std::vector<std::uint32_t> uses;       // references from inside the trace
  std::vector<std::uint32_t> leaves;     // positions of leaves, in argument order
  std::vector<std::uint64_t> slots;      // scalar values, in slot order
  std::vector<std::uint32_t> slot_uses;  // the slot of each scalar operand met, in walk order
  std::vector<std::uint32_t> roots;      // positions of the requested nodes
  std::vector<std::uint32_t> stored;     // positions of nodes that are stored with the roots, ascending
  struct StoredFor {
    std::uint32_t held, stored;  // positions: a held node, and what it is, or is a view of
  };
  std::vector<StoredFor> stored_for;
  /// Where a slice or pad begins along an axis that it does not cover; see positions.h.
  struct Start {
    std::int64_t value;   // the lowest element's
    std::int64_t factor;  // a power of two; once resolved one that divides the value
    SourceLocation loc;
    std::uint32_t node;  // position of the slice or pad
    std::uint32_t axis;
    std::uint32_t slot;  // kNone: static
  };
  std::vector<Start> starts;  // in walk order
  Hash128 key;
  /// Set before the walk. Of a block that a long recording is cut into: scalars that are equal by chance stay
  /// apart and nothing is stored but the roots, so that the plans of equal blocks are equal.
  bool block = false;
  /// Set before the walk: the device on whose memory updates may be written into the old value's memory, or
  /// -1; see plan/donate.h.
  int donating = -1;
  bool reusing = false;  // the same of whole results
  /// Set before the walk: the device of the evaluation, and the bytes that its kernels read at once where
  /// memory begins at a multiple of them; 0: alignment changes nothing.
  int device = ir::kAnyDevice, wide = 0;
  std::vector<std::uint32_t> updated;    // positions of leaves that are updated
  std::vector<std::uint32_t> donatable;  // those of them that nobody else has
  std::vector<std::uint32_t> large;      // positions of leaves that results may take the memory of
  std::vector<std::uint32_t> reusable;   // those of them that nobody else has, see plan/reuse.h
  bool lost = false;                     // a leaf's memory was overwritten by an evaluation that failed
  /// Set before the walk. Nodes that nobody asked for are among the roots.
  bool joined = false;

  bool held(std::uint32_t i) const { return nodes[i]->refs.load(std::memory_order_relaxed) > uses[i]; }

  /// Position of a node that this walk has numbered.
  std::uint32_t position(const ir::Node* node) const {
    const std::uint32_t mark = node->marked();
    if (mark < nodes.size() && nodes[mark] == node) return mark;
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
  std::vector<bool> follows;  // descends from a node that an earlier evaluation passed
  std::vector<bool> chosen;   // a root, or stored
  struct FrameEntry {
    ir::Node* node;
    std::uint32_t next;
  };
  std::vector<FrameEntry> stack;
};

enum class Walked {
  Done,
  // a node that may change belongs to a trace that the guard does not cover: widen it and walk again
  Foreign,
  Claimed,  // an evaluation that will store one of the nodes is running
};

/// Fills `walk` from the roots. `waits`: whether to stop at claimed nodes. Caller holds the guard.
Walked walk_trace(std::span<ir::Node* const> roots, const ir::TraceGuard& guard, std::uint64_t salt,
                  bool waits, Walk& walk);

/// The graph of a finished walk; its roots are the walk's, then what is stored with them. ids[i] is the graph
/// node of walk position i. `as_recorded`: every start is a number, for whoever checks what a plan made of
/// the positions.
ir::Graph build_graph(const Walk& walk, std::vector<ir::NodeId>& ids, bool as_recorded = false);

}  // namespace kiln::engine
