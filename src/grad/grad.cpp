// What kiln/grad.h calls that is no template.
#include <kiln/custom_vjp.h>

#include "grad/call_rule.h"
#include "grad/tape.h"
#include "record/step_alias.h"
#include "record/trace_locks.h"
#include "support/check.h"
#include "vmap/examples.h"

#include <kiln/ops.h>

namespace kiln {
namespace detail {

TapeHandle::TapeHandle(std::string_view op) : tape_(std::make_shared<diff::Tape>(op)) {}

std::vector<Tensor> TapeHandle::primals(std::span<const Tensor> leaves, std::span<const std::string> names,
                                        std::size_t argument) const {
  std::vector<Tensor> out;
  out.reserve(leaves.size());
  for (std::size_t i = 0; i < leaves.size(); ++i)
    out.push_back(tape_->primal(leaves[i], [&] {
      return names[i].empty() ? cat("argument ", argument) : cat("argument ", argument, ", ", names[i], ",");
    }));
  return out;
}

void TapeHandle::close(std::span<const Tensor> results) const { tape_->close(results); }
void TapeHandle::close_loss(const Tensor& loss) const { tape_->close_loss(loss); }

std::vector<Tensor> TapeHandle::pull(std::span<const Tensor> cotangents) const {
  return tape_->pull(cotangents);
}
std::vector<Tensor> TapeHandle::push(std::span<const Tensor> tangents) const { return tape_->push(tangents); }

std::vector<Tensor> TapeHandle::pull_loss() const { return tape_->pull_loss(); }

Tensor jacobian_of(const TapeHandle& tape, const Tensor& y, const Tensor& x) {
  const std::int64_t rows = y.numel(), columns = x.numel();
  Shape dims = y.shape();
  for (const std::int64_t d : x.shape()) dims.push_back(d);
  if (rows == 0 || columns == 0) return zeros(dims, y.dtype());
  const bool backward = rows <= columns;
  const Tensor& start = backward ? y : x;
  Shape passes{start.numel()};
  for (const std::int64_t d : start.shape()) passes.push_back(d);
  mapped::Examples examples(start.numel());
  const Tensor one = examples.one_of(reshape(eye(start.numel(), -1, 0, start.dtype()), passes));
  const Tensor all = examples.all_of(backward ? tape.pull({&one, 1}) : tape.push({&one, 1}))[0];
  return reshape(backward ? all : moveaxis(all, 0, -1), dims);
}

namespace {

class Ruled : public diff::CallRule {
 public:
  explicit Ruled(CustomRule rule) : rule_(std::move(rule)) {}

  std::vector<Tensor> pull(std::span<const Tensor> g, const std::vector<bool>& wanted) const override {
    std::vector<Tensor> back = rule_.pull(g);
    if (back.size() != wanted.size())
      throw UserError(cat("[", rule_.name, "] ", back.size(), " cotangents for ", wanted.size(), " tensors"));
    return back;
  }
  std::vector<Tensor> push(std::span<const Tensor> t) const override {
    if (!rule_.push)
      throw UserError(cat("[", rule_.name, "] a function with a derivative of its own has no tangents"));
    return rule_.push(t);
  }

 private:
  CustomRule rule_;
};

}  // namespace

bool differentiating() { return ir::OpenTape::any(); }

std::vector<Tensor> with_rule(CustomRule rule, std::span<const Tensor> in, std::span<const Tensor> out) {
  auto call = std::make_shared<ir::Call>();
  std::vector<Tensor> results;
  for (const Tensor& x : in) call->in.push_back(ir::NodeRef::share(api::checked(rule.name, x)));
  for (const Tensor& y : out) {
    call->out.push_back(api::alias_node(api::checked(rule.name, y), false));
    ir::mark_inside_step(call->out.back().get());
    results.push_back(diff::shared(call->out.back()));
  }
  call->rule = std::static_pointer_cast<const diff::CallRule>(std::make_shared<const Ruled>(std::move(rule)));
  ir::keep_call(std::move(call));
  return results;
}

std::vector<Tensor> with_zeros(std::span<const Tensor> given, std::span<const Tensor> like) {
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < like.size(); ++i)
    out.push_back(i < given.size() && given[i].valid()
                      ? given[i]
                      : diff::zeros_of(like[i].node()->dims(), *like[i].node()));
  return out;
}

namespace {

/// Whether a value is in memory, by whatever names. The results of a call are aliases as well, of what it
/// computed.
bool in_memory(const ir::Node* n) {
  const ir::TraceGuard guard;  // which holds back who would compute the aliases of this thread
  while (ir::op_now(n) == ir::Op::alias && guard.covers(n->home)) n = n->in[0];
  return ir::op_now(n) == ir::Op::leaf;
}

}  // namespace

Tensor after(const Tensor& x, const Tensor& g) {
  // A choice that always falls on x, though no planner sees that. Leaves are no work to make again.
  if (in_memory(x.node()) || g.numel() == 0) return x;
  Shape first, step, one;
  first.resize(g.rank(), 0);
  step.resize(g.rank(), 1);
  one.resize(g.rank(), 1);
  const ir::NodeRef element = api::slice_node(g.node(), first, step, one);
  const Tensor sample = api::finish(api::reshape_node(element.get(), {}));
  return where(isnan(sample) && sample == sample, diff::zeros_of(x.node()->dims(), *x.node()), x);
}

}  // namespace detail

Tensors while_loop(const std::function<Tensor(const Tensors&)>& condition,
                   const std::function<Tensors(const Tensors&)>& body, Tensors state, MaxIterations most,
                   SourceLocation loc) {
  const CallScope scope("while_loop", loc);
  const std::int64_t count = most.count;
  if (count < 0) throw UserError(cat("[while_loop] at most ", count, " iterations"));
  if (state.empty()) throw UserError("[while_loop] needs a state");
  const auto users = [](const Tensors& s) { return Tensors(s.begin(), s.end() - 1); };
  const std::size_t states = state.size();
  state.push_back(zeros({}, DType::Int64));
  // src/grad/loops.cpp finds the count and its bound in the condition.
  Tensors out = while_loop(
      [&](const Tensors& s) {
        const Tensor c = condition(users(s));
        if (!is_bool(api::checked("while_loop", c)->dtype))
          throw UserError(cat("[while_loop] the condition is not bool but ", api::describe(c)));
        const CallScope own("while_loop", loc);
        return logical_and(c, s.back() < count);
      },
      [&](const Tensors& s) {
        Tensors next = body(users(s));
        if (next.size() != states)
          throw UserError(
              cat("[while_loop] the body returns ", next.size(), " tensors for ", states, " states"));
        const CallScope own("while_loop", loc);
        next.push_back(s.back() + 1);
        return next;
      },
      std::move(state), loc);
  out.pop_back();
  return out;
}

Tensor stop_gradient(const Tensor& x, SourceLocation loc) {
  const CallScope scope("stop_gradient", loc);
  return api::finish(api::alias_node(api::checked("stop_gradient", x), true));
}

}  // namespace kiln
