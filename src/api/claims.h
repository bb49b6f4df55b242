// Claims: while an evaluation runs, the pending nodes that it will store are claimed, and another evaluation that needs one
// waits for it instead of computing the same again.
//
// Right answers never depend on claims: an evaluation that may not wait computes for itself, and the first to publish
// wins. A thread that holds claims never waits, so threads cannot wait for each other in a circle.
#pragma once

#include "ir/node.h"
#include "ir/trace_locks.h"

#include <vector>

namespace kiln::api {

class Claims {
 public:
  /// `nodes`: empty; memory for the list.
  Claims(ir::TraceGuard& guard, std::vector<ir::Node*>& nodes) : guard_(guard), nodes_(nodes) {}
  /// Gives the claims up. Takes the guard again where it was released, and leaves it taken.
  ~Claims();
  Claims(const Claims&) = delete;
  Claims& operator=(const Claims&) = delete;

  /// Whether the calling thread may wait for claimed nodes: it has none itself, and the threads of a parent process do not
  /// count.
  static bool may_wait();
  /// Releases the guard, waits until some evaluation has given its claims up, and takes the guard again.
  static void wait(ir::TraceGuard& guard);

  /// The caller holds the guard, and keeps a reference to the node while this object lives.
  void add(ir::Node* node) {
    node->claimed = 1;
    nodes_.push_back(node);
    if (nodes_.size() == 1) begin();
  }

 private:
  static void begin();
  ir::TraceGuard& guard_;
  std::vector<ir::Node*>& nodes_;
};

}  // namespace kiln::api
