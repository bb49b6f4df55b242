// Loops: the functions are called with placeholders for the states, and what they record hangs between these and the loop
// node. Shapes settle first: a state that meets a larger tensor is broadcast, and the functions are called again.
#include "api/evaluate.h"
#include "api/record.h"
#include "support/check.h"

#include <kiln/config.h>

#include <algorithm>

namespace kiln {
namespace {

using ir::NodeRef;

constexpr int kTries = 4;  // calls until shapes have settled: each can only make them larger

struct Recorded {
  std::vector<NodeRef> states, nexts;
  NodeRef condition;
};

Recorded record(const std::function<Tensor(const Tensors&)>& condition, const std::function<Tensors(const Tensors&)>& body,
                const Tensors& state, SourceLocation loc) {
  const api::Recording recording;
  Recorded r;
  Tensors now;
  for (const Tensor& s : state) {
    r.states.push_back(api::loop_state_node(s.node(), loc));
    now.push_back(Tensor::adopt(NodeRef::share(r.states.back().get()).take()));
  }
  const Tensor goes_on = condition(now);
  r.condition = NodeRef::share(api::checked("while_loop", goes_on));
  if (!is_bool(goes_on.dtype()))
    throw UserError(cat("[while_loop] the condition is not bool but ", api::describe(goes_on.node())));
  const Tensors next = body(now);
  if (next.size() != state.size())
    throw UserError(cat("[while_loop] the body returns ", next.size(), " tensors for ", state.size(), " states"));
  for (std::size_t s = 0; s < next.size(); ++s) {
    ir::Node* const n = api::checked("while_loop", next[s]);
    if (n->dtype != state[s].dtype())
      throw UserError(cat("[while_loop] state ", s, " begins as ", api::describe(state[s].node()), " and becomes ",
                          api::describe(n)));
    r.nexts.push_back(NodeRef::share(n));
  }
  return r;
}

}  // namespace

Tensors while_loop(const std::function<Tensor(const Tensors&)>& condition, const std::function<Tensors(const Tensors&)>& body,
                   Tensors state, SourceLocation loc) {
  if (state.empty()) throw UserError("[while_loop] needs a state");
  for (const Tensor& s : state) api::checked("while_loop", s);
  for (int tries = 0;; ++tries) {
    Recorded r = record(condition, body, state, loc);
    bool settled = true;
    for (std::size_t s = 0; s < state.size(); ++s) {
      const Shape with_next = api::broadcast_shapes("while_loop", state[s].shape(), r.nexts[s]->dims());
      const Shape wanted = api::broadcast_shapes("while_loop", with_next, r.condition->dims());
      if (std::ranges::equal(wanted, state[s].shape())) continue;
      if (tries == kTries)
        throw UserError(cat("[while_loop] state ", s, " grows with every iteration: ", state[s].shape().str(), " becomes ",
                            wanted.str()));
      settled = false;
      state[s] = broadcast_to(state[s], wanted, loc);
    }
    if (!settled) continue;
    for (std::size_t s = 0; s < state.size(); ++s)
      r.nexts[s] = api::broadcast_node(r.nexts[s].get(), r.states[s]->dims(), loc);
    const std::vector<NodeRef> results = api::loop_nodes(r.states, r.nexts, r.condition.get(), loc);
    Tensors out;
    {
      const api::Recording recording;
      for (const NodeRef& result : results) out.push_back(api::finish(result));
    }
    if (config().mode != Mode::Lazy && !api::Recording::active()) eval(out);  // all states of one run
    return out;
  }
}

Tensors cond(const Tensor& condition, const std::function<Tensors(const Tensors&)>& then,
             const std::function<Tensors(const Tensors&)>& otherwise, Tensors operands, SourceLocation loc) {
  ir::Node* const c = api::checked("cond", condition);
  if (!is_bool(c->dtype)) throw UserError(cat("[cond] the condition is not bool but ", api::describe(c)));
  for (const Tensor& x : operands) api::checked("cond", x);
  Tensors first, second;
  {
    const api::Recording recording;
    first = then(operands);
    second = otherwise(operands);
  }
  if (first.size() != second.size() || first.empty())
    throw UserError(cat("[cond] the branches return ", first.size(), " and ", second.size(), " tensors"));
  // A branch is a loop of one iteration where it is wanted. States: the two conditions, the operands, the results.
  Tensors state{condition, logical_not(condition, loc)};
  const auto results = static_cast<std::ptrdiff_t>(2 + operands.size());
  state.insert(state.end(), operands.begin(), operands.end());
  for (std::size_t i = 0; i < first.size(); ++i) {
    const ir::Node *a = api::checked("cond", first[i]), *b = api::checked("cond", second[i]);
    if (a->dtype != b->dtype || !std::ranges::equal(a->dims(), b->dims()))
      throw UserError(cat("[cond] result ", i, " is ", api::describe(a), " in one branch and ", api::describe(b), " in the other"));
    state.push_back(zeros(first[i].shape(), a->dtype, loc));
  }
  for (const std::size_t flag : {std::size_t{0}, std::size_t{1}})
    state = while_loop([&](const Tensors& s) { return s[flag]; },
                       [&](const Tensors& s) {
                         Tensors next(s.begin(), s.begin() + results);
                         next[flag] = zeros_like(s[flag], std::nullopt, loc);
                         const Tensors made = (flag == 0 ? then : otherwise)({s.begin() + 2, s.begin() + results});
                         next.insert(next.end(), made.begin(), made.end());
                         return next;
                       },
                       state, loc);
  return {state.begin() + results, state.end()};
}

}  // namespace kiln
