// The derivative of a loop. A loop is a call: its operands are the first values of its states and what its
// body reads from outside; its results are the last values of the states, and the stacks of what it kept.
//
// Forward, the tangents are states beside the others: this is any loop. Backward, a loop that counts runs
// once more and keeps its states, one for each iteration; then a loop runs from the last iteration to the
// first, makes the body again at each one's states, and takes the cotangents back through it. A branch of
// `cond` is a loop of at most one iteration, and so is its gradient. A loop whose condition bounds the number
// of its iterations (while_loop with MaxIterations) runs once more for so many, in which its states stay when
// it has ended. Another loop that does not count has no gradient: nobody knows for how many iterations to
// keep the states. Loops inside the body are made again with it, and have their own derivatives.
#pragma once

#include "grad/step.h"
#include "record/trace_locks.h"

#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
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
  using NodeSet = std::unordered_set<const ir::Node*>;
  bool gather_body(const ir::TraceGuard& guard);
  bool gather_behind(ir::Node* end, const ir::TraceGuard& guard, NodeSet& inside, NodeSet& outside,
                     NodeSet& met);
  bool add_inner_states(NodeSet& inside) const;
  void find_flag();
  void find_bound();
  bool is_bounded() const;
  std::vector<Tensor> pull_counted(std::span<const Tensor> g, const std::vector<bool>& wanted) const;
  std::vector<Tensor> pull_branch(std::span<const Tensor> g, const std::vector<bool>& wanted) const;
  std::vector<Tensor> pull_bounded(std::span<const Tensor> g, const std::vector<bool>& wanted) const;
  std::vector<Tensor> pulled_body(const std::vector<Tensor>& at, const std::vector<std::size_t>& outside,
                                  const std::vector<Tensor>& cotangents) const;
  /// The body, recorded again with other states.
  Made replayed(Values values) const;
  std::vector<Tensor> stacked_states() const;

  std::vector<ir::NodeRef> operands_;
  std::vector<ir::NodeRef> states_, nexts_, yields_;  // first to last
  ir::NodeRef condition_;
  std::vector<Step> body_;  // what depends on the states, operands first
  std::int64_t count_ = 0;
  SourceLocation loc_;
  struct Bound {
    std::int64_t count = 0;
    std::size_t state = 0;  // which counts them
  };
  std::optional<Bound> bound_;       // of its condition
  std::optional<std::size_t> flag_;  // of a branch: the state that is its condition, and false afterwards
};

}  // namespace kiln::diff
