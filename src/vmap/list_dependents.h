// The operations between what is replaced and the results of a recorded function.
#pragma once

#include "record/node.h"
#include "record/tape.h"

#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

namespace kiln::mapped {

/// The parts of a loop, first to last; see ir/loops.h.
struct LoopParts {
  std::vector<ir::Node*> states, nexts, yields;
  ir::Node* condition = nullptr;
};

struct Dependents {
  /// Operands before results. A loop is there as a whole, with states that depend on nothing that is
  /// replaced.
  std::vector<ir::NodeRef> nodes;
  std::unordered_map<const ir::Node*, LoopParts> loops;                        // by loop
  std::unordered_map<const ir::Node*, ir::Node*> loop_of;                      // by state
  std::unordered_map<const ir::Node*, std::shared_ptr<const ir::Call>> calls;  // by result
};

/// Every node behind `results` that depends on one that is `known`, which are not followed. None of them can
/// be evaluated, so that nobody changes them. A call with a derivative of its own (record/tape.h) depends as
/// a whole: its operands and all of its results are there.
Dependents list_dependents(std::span<ir::Node* const> results,
                           const std::function<bool(const ir::Node*)>& known);

}  // namespace kiln::mapped
