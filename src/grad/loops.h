// The derivative of a loop. A loop is a call: its operands are the first values of its states and what its
// body reads from outside; its results are the last values of the states, and the stacks of what it kept.
//
// Forward, the tangents are states beside the others: this is any loop. Backward, a loop that counts runs
// once more and keeps its states, one for each iteration; then a loop runs from the last iteration to the
// first, makes the body again at each one's states, and takes the cotangents back through it. A branch of
// `cond` is a loop of at most one iteration, and so is its gradient. Another loop that does not count has no
// gradient: nobody knows for how many iterations to keep the states.
#pragma once

#include "grad/step.h"
#include "record/trace_locks.h"

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

namespace kiln::diff {

class LoopRule : public CallRule {
 public:
  /// Of an `Op::loop`. Null: it has nodes that the guard does not cover.
  static std::shared_ptr<const LoopRule> of(ir::Node* loop, const ir::TraceGuard& guard);

  /// First values of the states, then what the body reads.
  const std::vector<ir::NodeRef>& operands() const { return operands_; }
  /// The number of a loop_result or a loop_stack among the results: states first, then what is kept.
  int result_of(const ir::Edge& edge) const;

  std::vector<Tensor> pull(std::span<const Tensor> g, const std::vector<bool>& wanted) const override;
  std::vector<Tensor> push(std::span<const Tensor> t) const override;

 private:
  using Values = std::unordered_map<const ir::Node*, Tensor>;
  struct Made {
    std::vector<Tensor> nexts, yields;
    Tensor condition;
  };
  bool gather(ir::Node* loop, const ir::TraceGuard& guard);
  bool gather_body(const ir::TraceGuard& guard);
  void refuse_nested() const;
  void find_flag();
  std::vector<Tensor> pull_counted(std::span<const Tensor> g, const std::vector<bool>& wanted) const;
  std::vector<Tensor> pull_branch(std::span<const Tensor> g, const std::vector<bool>& wanted) const;
  /// The body, recorded again with other states.
  Made replayed(Values values) const;
  std::vector<Tensor> stacked_states() const;

  std::vector<ir::NodeRef> operands_;
  std::vector<ir::NodeRef> states_, nexts_, yields_;  // first to last
  ir::NodeRef condition_;
  std::vector<Step> body_;  // what depends on the states, operands first
  std::int64_t count_ = 0;
  SourceLocation loc_;
  bool nested_ = false;
  std::optional<std::size_t> flag_;  // of a branch: the state that is its condition, and false afterwards
};

}  // namespace kiln::diff
