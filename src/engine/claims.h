// Claims: while an evaluation runs, the pending nodes that it will store are claimed, and another evaluation
// that needs one waits for it instead of computing the same again.
//
// Right answers do not depend on claims of nodes: an evaluation that may not wait computes for itself, and
// the first to publish wins. They do depend on claims of memory, which an evaluation overwrites with a new
// value (plan/donate.h): nobody reads the old value meanwhile. Whoever could reach it comes by a claimed node
// first, or finds the memory claimed. An evaluation inside another one of its thread never waits for nodes,
// so threads cannot wait for each other in a circle.
#pragma once

#include "record/node.h"
#include "record/trace_locks.h"

#include <span>
#include <vector>

namespace kiln::engine {

class Claims {
 public:
  /// `nodes`: empty; memory for the list.
  Claims(ir::TraceGuard& guard, std::vector<ir::Node*>& nodes) : guard_(guard), nodes_(nodes) {}
  /// Gives the claims up. Takes the guard again where it was released, and leaves it taken.
  ~Claims();
  Claims(const Claims&) = delete;
  Claims& operator=(const Claims&) = delete;

  /// Whether claimed nodes may be waited for: not in a forked child, which lacks the threads that claimed
  /// them.
  static bool may_wait();
  /// Releases the guard, waits until some evaluation has given its claims up, and takes the guard again.
  static void wait(ir::TraceGuard& guard);

  /// The caller holds the guard, and keeps a reference to the node while this object lives.
  void add_memory(ir::Buffer* buffer) {
    buffer->claim.store(static_cast<std::uint8_t>(ir::BufferClaim::Written), std::memory_order_relaxed);
    buffers_.push_back(buffer);
  }
  /// Gives all memory up but these. The caller holds the guard.
  void keep_memory(std::span<ir::Buffer* const> kept);
  /// To be set before memory is overwritten, and taken back when what was written is published: in between
  /// the old value is lost.
  bool wrote = false;

  void add(ir::Node* node) {
    node->claim();
    nodes_.push_back(node);
  }

 private:
  ir::TraceGuard& guard_;
  std::vector<ir::Node*>& nodes_;
  std::vector<ir::Buffer*> buffers_;
};

}  // namespace kiln::engine
