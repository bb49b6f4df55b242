// Values that pile up: a running average that nobody reads until the end, results kept in a list. No
// evaluation needs them, so the recorded operations and the memory they keep would grow with every iteration.
// When the pending nodes of a thread's trace have grown over three evaluations, those that handles keep and
// no other pending node needs join the evaluation, and from then on so do pending values of the same lines.
#pragma once

#include "record/node.h"

#include <span>
#include <vector>

namespace kiln::engine {

struct Growth;

/// Lives around one evaluation of the calling thread: decides what joins it, and takes note of what is
/// pending after it.
class Joining {
 public:
  explicit Joining(std::span<ir::Node* const> roots);
  ~Joining();
  Joining(const Joining&) = delete;
  Joining& operator=(const Joining&) = delete;

  /// The roots and what joins them; empty where nothing does.
  std::span<ir::Node* const> nodes() const { return nodes_; }

 private:
  void collect(std::span<ir::Node* const> roots);
  Growth& growth_;  // the calling thread's
  std::vector<ir::Node*> nodes_;
  std::vector<ir::NodeRef> joined_;
};

/// Forgets what the calling thread's evaluations have shown so far: for tests.
void forget_growth();

}  // namespace kiln::engine
