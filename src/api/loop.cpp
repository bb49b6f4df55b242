// Loops: the functions are called with placeholders for the states, and what they record hangs between these
// and the loop node. Shapes settle first: a state that meets a larger tensor is broadcast, and the functions
// are called again.
#include "api/record.h"
#include "engine/evaluate.h"
#include "ir/infer.h"
#include "record/recorded.h"
#include "support/check.h"

#include <kiln/config.h>

#include <algorithm>
#include <typeinfo>

namespace kiln {
namespace {

using ir::NodeRef;

constexpr int kTries = 4;  // calls until shapes have settled: each can only make them larger
// Loops and branches inside each other: every level is planned, compiled and run inside the one around it.
constexpr int kMaxDepth = 64;

/// What a body made of the states.
struct Made {
  Tensor condition;
  Tensors nexts, yields;
};
using Body = std::function<Made(const Tensors&)>;

struct Recorded {
  std::vector<NodeRef> states, nexts, yields;
  NodeRef condition;
};

/// Runs a function that the user gave. What it records belongs to its own lines, and so do its errors; one
/// that names no line gets the loop's.
template <class Function, class... Args>
auto run_user_code(const Function& f, const Args&... args) {
  const SourceLocation line = CallScope::line_or({});
  const OutsideCalls running;
  try {
    return f(args...);
  } catch (const UserError& e) {
    if (e.where().line() != 0 || typeid(e) != typeid(UserError)) throw;
    throw UserError(std::string(e.message()), line);
  }
}

Recorded record(std::string_view op, const Body& body, const Tensors& state) {
  const api::Recording recording;
  if (api::Recording::depth() > kMaxDepth)
    throw UserError(cat("[", op, "] loops and branches inside each other: at most ", kMaxDepth, " deep"));
  const ir::UnnotedRecording unnoted;
  Recorded r;
  Tensors now;
  for (const Tensor& s : state) {
    r.states.push_back(api::loop_state_node(s.node()));
    now.push_back(Tensor::adopt(NodeRef::share(r.states.back().get()).take()));
  }
  const Made made = body(now);
  r.condition = NodeRef::share(api::checked(op, made.condition));
  if (!is_bool(made.condition.dtype()))
    throw UserError(cat("[", op, "] the condition is not bool but ", api::describe(made.condition.node())));
  for (std::size_t s = 0; s < made.nexts.size(); ++s) {
    ir::Node* const n = api::checked(op, made.nexts[s]);
    if (n->dtype != state[s].dtype())
      throw UserError(cat("[", op, "] state ", s, " begins as ", api::describe(state[s].node()),
                          " and becomes ", api::describe(n)));
    r.nexts.push_back(NodeRef::share(n));
  }
  for (const Tensor& y : made.yields) r.yields.push_back(NodeRef::share(api::checked(op, y)));
  return r;
}

void require_as_many(std::string_view op, std::size_t returned, std::size_t states) {
  if (returned != states)
    throw UserError(cat("[", op, "] the body returns ", returned, " tensors for ", states, " states"));
}

struct Results {
  Tensors states, stacks;
};

/// A loop; one of `count` iterations has their number, from 0, as its last state.
Results repeat(std::string_view op, const Body& body, Tensors state, std::optional<std::int64_t> count) {
  for (int tries = 0;; ++tries) {
    Recorded r = record(op, body, state);
    bool settled = true;
    for (std::size_t s = 0; s < state.size(); ++s) {
      std::optional<Shape> wanted = ir::broadcast_dims(state[s].shape(), r.nexts[s]->dims());
      if (wanted) wanted = ir::broadcast_dims(*wanted, r.condition->dims());
      if (!wanted)
        throw UserError(cat("[", op, "] state ", s, " begins as ", api::describe(state[s]), " and becomes ",
                            api::describe(r.nexts[s].get()), ", the condition is ",
                            api::describe(r.condition.get()), ": they do not broadcast"));
      if (std::ranges::equal(*wanted, state[s].shape())) continue;
      if (tries == kTries)
        throw UserError(cat("[", op, "] state ", s, " grows with every iteration: ", state[s].shape().str(),
                            " becomes ", wanted->str()));
      settled = false;
      state[s] = broadcast_to(state[s], *wanted);
    }
    if (!settled) continue;
    for (std::size_t s = 0; s < state.size(); ++s)
      r.nexts[s] = api::broadcast_node(r.nexts[s].get(), r.states[s]->dims());
    Results out;
    if (count == 0) {  // nothing to repeat
      out.states = std::move(state);
      for (const NodeRef& y : r.yields) {
        Shape dims{0};
        for (std::int64_t d : y->dims()) dims.push_back(d);
        out.stacks.push_back(zeros(dims, y->dtype));
      }
      return out;
    }
    const api::LoopNodes made =
        api::loop_nodes(r.states, r.nexts, r.condition.get(), r.yields, count.value_or(0));
    {
      const api::Recording recording;
      for (const NodeRef& result : made.results) out.states.push_back(api::finish(result));
      for (const NodeRef& stack : made.stacks) out.stacks.push_back(api::finish(stack));
    }
    if (config().mode != Mode::Lazy && !api::Recording::active()) {  // all of one run
      r = {};                            // what is held is computed, though the loop may not want it
      if (count) out.states.pop_back();  // nobody asks for the count
      Tensors all = out.states;
      all.insert(all.end(), out.stacks.begin(), out.stacks.end());
      eval(all);
    }
    return out;
  }
}

}  // namespace

Tensors while_loop(const std::function<Tensor(const Tensors&)>& condition,
                   const std::function<Tensors(const Tensors&)>& body, Tensors state, SourceLocation loc) {
  const CallScope scope("while_loop", loc);
  if (state.empty()) throw UserError("[while_loop] needs a state");
  for (const Tensor& s : state) api::checked("while_loop", s);
  const Body both = [&](const Tensors& s) {
    Made made;
    made.condition = run_user_code(condition, s);
    made.nexts = run_user_code(body, s);
    require_as_many("while_loop", made.nexts.size(), s.size());
    return made;
  };
  return repeat("while_loop", both, std::move(state), std::nullopt).states;
}

Scanned scan(const std::function<Scanned(const Tensors&, const Tensors&)>& body, Tensors init,
             const Tensors& xs, Axis axis, Flag reverse, SourceLocation loc) {
  const CallScope scope("scan", loc);
  if (xs.empty()) throw UserError("[scan] needs a tensor to go along");
  Tensors rows;  // the scanned axis first, in the order of the iterations
  std::int64_t count = 0;
  for (const Tensor& x : xs) {
    const ir::Node* const node = api::checked("scan", x);
    const int a = api::checked_axis("scan", axis, node);
    const std::int64_t extent = node->dims()[static_cast<std::size_t>(a)];
    if (!rows.empty() && extent != count)
      throw UserError(cat("[scan] extents along axis ", axis.value(),
                          " differ: ", api::describe(xs[0].node()), ", ", api::describe(node)));
    count = extent;
    const Tensor row = moveaxis(x, a, 0);
    rows.push_back(reverse ? flip(row, 0) : row);
  }
  const std::size_t n = init.size();
  for (const Tensor& s : init) api::checked("scan", s);
  init.push_back(zeros({}, DType::Int64));
  const Body step = [&](const Tensors& s) {
    const Tensor& i = s[n];
    Tensors x;
    for (const Tensor& row : rows) {
      const Shape dims = row.shape();
      x.push_back(count > 0 ? take(row, i, 0)
                            : zeros(Shape(std::span<const std::int64_t>(dims).subspan(1)), row.dtype()));
    }
    Scanned out = run_user_code(body, Tensors(s.begin(), s.begin() + static_cast<std::ptrdiff_t>(n)), x);
    require_as_many("scan", out.carry.size(), n);
    Made made;
    made.condition = i < count;
    made.nexts = std::move(out.carry);
    made.nexts.push_back(i + 1);
    made.yields = std::move(out.ys);
    return made;
  };
  Results r = repeat("scan", step, std::move(init), count);
  r.states.resize(n);
  for (Tensor& y : r.stacks) {
    if (reverse) y = flip(y, 0);
    y = moveaxis(y, 0, axis);
  }
  return {std::move(r.states), std::move(r.stacks)};
}

Tensors cond(const Tensor& condition, const std::function<Tensors(const Tensors&)>& then,
             const std::function<Tensors(const Tensors&)>& otherwise, Tensors operands, SourceLocation loc) {
  const CallScope scope("cond", loc);
  ir::Node* const c = api::checked("cond", condition);
  if (!is_bool(c->dtype)) throw UserError(cat("[cond] the condition is not bool but ", api::describe(c)));
  for (const Tensor& x : operands) api::checked("cond", x);
  Tensors first, second;
  {
    const api::Recording recording;
    first = run_user_code(then, operands);
    second = run_user_code(otherwise, operands);
  }
  if (first.size() != second.size() || first.empty())
    throw UserError(cat("[cond] the branches return ", first.size(), " and ", second.size(), " tensors"));
  // A branch is a loop of one iteration where it is wanted. States: the two conditions, the operands, the
  // results.
  Tensors state{condition, logical_not(condition)};
  const auto results = static_cast<std::ptrdiff_t>(2 + operands.size());
  state.insert(state.end(), operands.begin(), operands.end());
  for (std::size_t i = 0; i < first.size(); ++i) {
    const ir::Node *a = api::checked("cond", first[i]), *b = api::checked("cond", second[i]);
    if (a->dtype != b->dtype || !std::ranges::equal(a->dims(), b->dims()))
      throw UserError(cat("[cond] result ", i, " is ", api::describe(a), " in one branch and ",
                          api::describe(b), " in the other"));
    state.push_back(zeros(first[i].shape(), a->dtype));
  }
  for (const std::size_t flag : {std::size_t{0}, std::size_t{1}})
    state = while_loop([&](const Tensors& s) { return s[flag]; },
                       [&](const Tensors& s) {
                         Tensors next(s.begin(), s.begin() + results);
                         {  // the loop takes this function for the user's
                           const CallScope of_cond("cond", loc);
                           next[flag] = zeros_like(s[flag]);
                         }
                         const Tensors made =
                             (flag == 0 ? then : otherwise)({s.begin() + 2, s.begin() + results});
                         next.insert(next.end(), made.begin(), made.end());
                         return next;
                       },
                       state);
  return {state.begin() + results, state.end()};
}

}  // namespace kiln
