// Loops for many examples at once. A loop whose condition differs between examples goes on until it is false
// for all: each example's states stop by themselves, as the elements of any loop do (ir/loops.h). The
// condition broadcasts to every state, so that all states then are carried with as many axes.
#include "ir/infer.h"
#include "vmap/recorder.h"

#include <kiln/config.h>

namespace kiln::mapped {

using ir::Node;
using ir::NodeRef;
using ir::Op;

NodeRef Recorder::carried(const Loop& loop, const NodeRef& all) const {
  return loop.rank ? with_rank(all.get(), *loop.rank) : all;
}

void Recorder::open_loop(Node* state) {
  const auto found = list_.loop_of.find(state);
  if (found == list_.loop_of.end())
    throw UserError("[loop] a value made in a loop's body has no value outside of it", state->loc);
  Loop& loop = loops_.at(found->second);
  if (!loop.open && open_++ == 0) {
    body_.emplace();
    unnoted_.emplace();
  }
  loop.open = true;
  const Value first = to_.value(ir::operands(*state)[0]);
  Value now{first.node, is_mapped(state)};
  if (now.mapped) now.node = carried(loop, to_.all(first));
  now.node = loop.states[state] = api::loop_state_node(now.node.get());
  if (now.mapped) now.node = api::reshape_node(now.node.get(), ir::stacked_dims(to_.count(), state->dims()));
  to_.put(state, std::move(now));
}

/// The condition as it is carried. Where it is a state, that state itself: who looks at the loop finds it.
NodeRef Recorder::condition_of(const Loop& loop) const {
  if (const auto state = loop.states.find(loop.parts->condition); state != loop.states.end())
    return state->second;
  const Value v = to_.value(loop.parts->condition);
  return v.mapped ? carried(loop, v.node) : v.node;
}

void Recorder::close_loop(Node* node) {
  Loop& loop = loops_.at(node);
  record_loop(loop, ir::attributes<ir::Loop>(*node).count);
  finish(loop);
}

/// Holds nothing of the body afterwards: what is held is computed, though the loop may not want it.
void Recorder::record_loop(Loop& loop, std::int64_t count) {
  std::vector<NodeRef> states, nexts, yields;
  for (std::size_t s = 0; s < loop.parts->states.size(); ++s) {
    const Node* const state = loop.parts->states[s];
    const Value next = to_.value(loop.parts->nexts[s]);
    states.push_back(loop.states.at(state));
    nexts.push_back(is_mapped(state) ? carried(loop, to_.all(next)) : next.node);
  }
  for (Node* const y : loop.parts->yields) yields.push_back(to_.value(y).node);
  const NodeRef condition = condition_of(loop);
  if (--open_ == 0) {
    unnoted_.reset();
    body_.reset();
  }
  loop.made = api::loop_nodes(states, nexts, condition.get(), yields, count);
  if (count > 0) loop.made.results.pop_back();  // nobody asks for the count
}

/// Computes all results in one run where nothing waits.
void Recorder::finish(const Loop& loop) {
  if (config().mode == Mode::Lazy || api::Recording::active()) return;
  std::vector<Tensor> all;
  for (const auto* list : {&loop.made.results, &loop.made.stacks})
    for (const NodeRef& n : *list) all.push_back(Tensor::adopt(NodeRef::share(n.get()).take()));
  eval(all);
}

void Recorder::take_result(Node* result) {
  Node* const node = ir::operands(*result)[0];
  const Loop& loop = loops_.at(node);
  const bool stack = result->op == Op::loop_stack;
  const auto& made = stack ? loop.made.stacks : loop.made.results;
  const std::size_t all = stack ? loop.parts->yields.size() : loop.parts->states.size();
  Value out{made[all - 1 - ir::attributes<ir::LoopResult>(*result).index], is_mapped(result)};
  if (out.mapped && stack) {  // iterations come first
    std::vector<int> axes{1, 0};
    for (int a = 2; a < out.node->rank; ++a) axes.push_back(a);
    out.node = api::permute_node(out.node.get(), axes);
  } else if (out.mapped) {
    out.node = api::reshape_node(out.node.get(), ir::stacked_dims(to_.count(), result->dims()));
  }
  to_.put(result, std::move(out));
}

}  // namespace kiln::mapped
