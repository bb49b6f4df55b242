#include "grad/loops.h"

#include "grad/tape.h"
#include "record/recorded.h"
#include "support/check.h"

#include <kiln/ops.h>

#include <algorithm>
#include <optional>

namespace kiln::diff {
namespace {

using api::finish;
using ir::Node;
using ir::NodeRef;
using ir::Op;

bool carries(const Node& n) { return is_float(n.dtype); }

Tensor alias_of(Tape& tape, const Tensor& x) { return tape.primal(x); }

}  // namespace

std::shared_ptr<const LoopRule> LoopRule::of(Node* loop, const ir::TraceGuard& guard) {
  auto rule = std::make_shared<LoopRule>();
  return rule->gather(loop, guard) && rule->gather_body(guard) ? rule : nullptr;
}

bool LoopRule::gather(Node* loop, const ir::TraceGuard& guard) {
  if (!guard.covers(loop->home)) return false;
  loc_ = loop->loc;
  count_ = ir::attributes<ir::Loop>(*loop).count;
  condition_ = NodeRef::share(ir::operands(*loop)[1]);
  for (Node* at = ir::operands(*loop)[0]; at;) {
    if (!guard.covers(at->home)) return false;
    const auto in = ir::operands(*at);
    const bool state = at->op == Op::loop_next;
    if (state) {
      states_.push_back(NodeRef::share(in[0]));
      nexts_.push_back(NodeRef::share(in[1]));
    } else {
      yields_.push_back(NodeRef::share(in[0]));
    }
    const std::size_t own = state ? 2 : 1;
    at = in.size() > own ? in[own] : nullptr;
  }
  for (auto* list : {&states_, &nexts_, &yields_}) std::reverse(list->begin(), list->end());
  for (const NodeRef& s : states_) {
    if (!guard.covers(s->home)) return false;
    operands_.push_back(NodeRef::share(ir::operands(*s)[0]));
  }
  find_flag();
  find_bound();
  return true;
}

/// A condition that is a state, and 0 in the next iteration.
void LoopRule::find_flag() {
  for (std::size_t s = 0; s < states_.size(); ++s) {
    if (states_[s].get() != condition_.get()) continue;
    const Node* next = nexts_[s].get();
    while (next->op == Op::broadcast || next->op == Op::reshape) next = next->in[0];
    if (next->op == Op::scalar && next->imm == 0) flag_ = s;
  }
}

namespace {

/// What reshapes and repetitions show.
const Node* shown(const Node* n) {
  while (n && (ir::op_now(n) == Op::broadcast || ir::op_now(n) == Op::reshape)) n = ir::operands(*n)[0];
  return n;
}

}  // namespace

/// A condition of which one side is `i < n`, where i is a state that becomes i + 1.
void LoopRule::find_bound() {
  const Node* const both = shown(condition_.get());
  if (count_ > 0 || both->op != Op::logical_and) return;
  for (const Node* side : ir::operands(*both)) {
    const Node* const less = shown(side);
    if (less == nullptr || less->op != Op::less || less->in[1] != nullptr) continue;
    for (std::size_t s = 0; s < states_.size(); ++s) {
      const Node* const next = shown(nexts_[s].get());
      const bool counts = shown(less->in[0]) == states_[s].get() && next->op == Op::add &&
                          shown(next->in[0]) == states_[s].get() && next->in[1] == nullptr && next->imm == 1;
      if (counts && states_[s]->dtype == DType::Int64) bound_ = {static_cast<std::int64_t>(less->imm), s};
    }
  }
}

/// Whether the count begins at 0 or above. Where every operation is computed at once, memory says.
bool LoopRule::is_bounded() const {
  if (!bound_) return false;
  const Node* const first = shown(operands_[bound_->state].get());
  if (ir::op_now(first) == Op::scalar) return static_cast<std::int64_t>(first->imm) >= 0;
  const Tensor value = shared(operands_[bound_->state]);
  return ir::op_now(first) == Op::leaf && (value.numel() == 0 || min(value).item<std::int64_t>() >= 0);
}

/// The nodes that depend on the states, and the others that they read. A loop among them is there as a whole:
/// its states, too, that depend on none of these.
bool LoopRule::gather_body(const ir::TraceGuard& guard) {
  std::vector<NodeRef> ends = nexts_;
  ends.insert(ends.end(), yields_.begin(), yields_.end());
  ends.push_back(condition_);
  NodeSet inside, outside, met;
  do {
    body_.clear();
    outside.clear();
    met.clear();
    for (const NodeRef& s : states_) {  // which stand for themselves
      inside.insert(s.get());
      met.insert(s.get());
    }
    for (const NodeRef& end : ends)
      if (!gather_behind(end.get(), guard, inside, outside, met)) return false;
  } while (add_inner_states(inside));
  NodeSet noted;
  const auto read_outside = [&](const NodeRef& n) {
    if (!n || !carries(*n) || !ir::has_value(ir::op_now(n.get())) || !outside.contains(n.get())) return;
    if (noted.insert(n.get()).second) operands_.push_back(n);
  };
  for (const Step& s : body_)
    for (const NodeRef& in : s.edge.in) read_outside(in);
  for (const NodeRef& end : ends) read_outside(end);
  return true;
}

/// Puts what is behind a node, and depends on what is inside, into the body; operands first. States of inner
/// loops are inside before they are met.
bool LoopRule::gather_behind(Node* end, const ir::TraceGuard& guard, NodeSet& inside, NodeSet& outside,
                             NodeSet& met) {
  struct Frame {
    Node* node;
    std::size_t next;
    bool inside;
  };
  std::vector<Frame> stack;
  const auto enter = [&](Node* n) {
    if (outside.contains(n) || met.contains(n)) return true;
    if (ir::op_now(n) == Op::leaf) return outside.insert(n), true;
    if (!guard.covers(n->home)) return false;
    stack.push_back({n, 0, inside.contains(n)});
    return true;
  };
  if (!enter(end)) return false;
  while (!stack.empty()) {
    Frame& top = stack.back();
    const auto in = ir::operands(*top.node);
    if (top.next < in.size()) {
      Node* const operand = in[top.next];
      if (operand && !outside.contains(operand) && !met.contains(operand)) {
        if (!enter(operand)) return false;
        continue;
      }
      top.inside |= operand && inside.contains(operand);
      ++top.next;
      continue;
    }
    const Frame done = top;
    stack.pop_back();
    met.insert(done.node);
    (done.inside ? inside : outside).insert(done.node);
    if (!done.inside) continue;
    Step s;
    s.node = NodeRef::share(done.node);
    s.edge = ir::edge_of(*done.node);
    body_.push_back(std::move(s));
  }
  return true;
}

/// Whether there were states of loops in the body that are not inside yet.
bool LoopRule::add_inner_states(NodeSet& inside) const {
  bool more = false;
  for (const Step& s : body_)
    if (s.edge.op == Op::loop_next) more |= inside.insert(s.edge.in[0].get()).second;
  return more;
}

int LoopRule::result_of(const ir::Edge& edge) const {
  const auto from_last = static_cast<int>(ir::attributes<ir::LoopResult>(edge).index);
  const int states = static_cast<int>(states_.size()), yields = static_cast<int>(yields_.size());
  return edge.op == Op::loop_result ? states - 1 - from_last : states + yields - 1 - from_last;
}

LoopRule::Made LoopRule::replayed(Values values) const {
  const auto now = [&](const NodeRef& n) {
    if (!n) return Tensor();
    const auto found = values.find(n.get());
    return found == values.end() ? shared(n) : found->second;
  };
  std::vector<Tensor> in;
  for (const Step& s : body_) {
    in.clear();
    for (const NodeRef& operand : s.edge.in) in.push_back(now(operand));
    values[s.node.get()] = replay(s, in);
  }
  Made made;
  for (const NodeRef& n : nexts_) made.nexts.push_back(now(n));
  for (const NodeRef& y : yields_) made.yields.push_back(now(y));
  made.condition = now(condition_);
  return made;
}

namespace {

std::vector<NodeRef> nodes_of(std::span<const Tensor> tensors) {
  std::vector<NodeRef> out;
  for (const Tensor& t : tensors) out.push_back(NodeRef::share(t.node()));
  return out;
}

std::vector<Tensor> finished(std::span<const NodeRef> nodes) {
  std::vector<Tensor> out;
  for (const NodeRef& n : nodes) out.push_back(finish(n));
  return out;
}

}  // namespace

/// The states of each iteration, one after the other along a first axis.
std::vector<Tensor> LoopRule::stacked_states() const {
  const api::Recording recording;
  std::vector<NodeRef> states, nexts, yields;
  NodeRef condition;
  {
    const ir::UnnotedRecording unnoted;
    Values values;
    for (std::size_t s = 0; s < states_.size(); ++s) {
      states.push_back(api::loop_state_node(operands_[s].get()));
      values[states_[s].get()] = shared(states.back());
    }
    const Made made = replayed(std::move(values));
    nexts = nodes_of(made.nexts);
    condition = NodeRef::share(made.condition.node());
  }
  return finished(api::loop_nodes(states, nexts, condition.get(), states, count_).stacks);
}

std::vector<Tensor> LoopRule::pull(std::span<const Tensor> g, const std::vector<bool>& wanted) const {
  if (flag_) return pull_branch(g, wanted);
  if (count_ > 0) return pull_counted(g, wanted);
  if (is_bounded()) return pull_bounded(g, wanted);
  throw UserError(
      "[while_loop] no gradient: nobody knows how many iterations there will be; give it MaxIterations "
      "(kiln/grad.h), or use scan or jvp",
      loc_);
}

/// The cotangents of the body's states that carry, and of `outside`, from those of their next values.
std::vector<Tensor> LoopRule::pulled_body(const std::vector<Tensor>& at,
                                          const std::vector<std::size_t>& outside,
                                          const std::vector<Tensor>& cotangents) const {
  Tape tape("while_loop");
  Values values;
  for (std::size_t s = 0; s < states_.size(); ++s)
    values[states_[s].get()] = carries(*states_[s]) ? alias_of(tape, at[s]) : at[s];
  for (const std::size_t k : outside) tape.cut_at(operands_[k]);
  const Made made = replayed(std::move(values));
  std::vector<Tensor> results;
  for (std::size_t s = 0; s < states_.size(); ++s)
    if (carries(*states_[s])) results.push_back(made.nexts[s]);
  tape.close(results);
  return tape.pull(cotangents);
}

/// As many iterations as the bound says; elements that have ended keep their states and their cotangents. The
/// body of what has ended is made at the first states: it may be infinite at the last ones.
std::vector<Tensor> LoopRule::pull_bounded(std::span<const Tensor> g, const std::vector<bool>& wanted) const {
  const std::size_t states = states_.size();
  Tensors first, carry;
  std::vector<std::size_t> floats, outside;
  for (std::size_t s = 0; s < states; ++s) {
    first.push_back(shared(operands_[s]));
    if (!carries(*states_[s])) continue;
    floats.push_back(s);
    carry.push_back(s < g.size() && g[s].valid() ? g[s] : zeros_of(states_[s]->dims(), *states_[s]));
  }
  for (std::size_t k = states; k < operands_.size(); ++k)
    if (wanted[k]) {
      outside.push_back(k);
      carry.push_back(zeros_of(operands_[k]->dims(), *operands_[k]));
    }
  const Tensor count = arange(std::max<std::int64_t>(bound_->count, 0), DType::Int64);
  const Tensors kept = scan(
                           [&](const Tensors& now, const Tensors&) {
                             Values values;
                             for (std::size_t s = 0; s < states; ++s) values[states_[s].get()] = now[s];
                             const Made made = replayed(std::move(values));
                             Tensors next, keep{made.condition};
                             for (std::size_t s = 0; s < states; ++s) {
                               next.push_back(where(made.condition, made.nexts[s], now[s]));
                               keep.push_back(where(made.condition, now[s], first[s]));
                             }
                             return Scanned{std::move(next), std::move(keep)};
                           },
                           first, {count})
                           .ys;
  const Tensors out =
      scan(
          [&](const Tensors& now, const Tensors& at) {
            const Tensor& active = at[0];
            Tensors cotangents;
            for (std::size_t i = 0; i < floats.size(); ++i) cotangents.push_back(where(active, now[i], 0.0));
            Tensors back = pulled_body({at.begin() + 1, at.end()}, outside, cotangents);
            for (std::size_t i = 0; i < back.size(); ++i) {
              if (i < floats.size())
                back[i] = where(active, back[i], now[i]);
              else
                back[i] = now[i] + (active.numel() == 1 ? where(reshape(active, {}), back[i], 0.0) : back[i]);
            }
            return Scanned{std::move(back), {}};
          },
          carry, kept, 0, true)
          .carry;
  std::vector<Tensor> to(operands_.size());
  for (std::size_t i = 0; i < floats.size(); ++i) to[floats[i]] = out[i];
  for (std::size_t i = 0; i < outside.size(); ++i) to[outside[i]] = out[floats.size() + i];
  return to;
}

/// Where the branch is not taken, the states stay and so do their cotangents.
std::vector<Tensor> LoopRule::pull_branch(std::span<const Tensor> g, const std::vector<bool>& wanted) const {
  const Tensor taken = shared(operands_[*flag_]);
  Tensors carry;
  std::vector<std::size_t> floats, outside;
  for (std::size_t s = 0; s < states_.size(); ++s)
    if (carries(*states_[s])) {
      floats.push_back(s);
      carry.push_back(s < g.size() && g[s].valid() ? g[s] : zeros_of(states_[s]->dims(), *states_[s]));
    }
  for (std::size_t k = states_.size(); k < operands_.size(); ++k)
    if (wanted[k]) outside.push_back(k);
  const auto back = [&](const Tensors& cotangents) {
    Tape tape("cond");
    Values values;
    for (std::size_t s = 0; s < states_.size(); ++s) {
      const Tensor first = shared(operands_[s]);
      values[states_[s].get()] = carries(*states_[s]) ? alias_of(tape, first) : first;
    }
    for (const std::size_t k : outside) tape.cut_at(operands_[k]);
    const Made made = replayed(std::move(values));
    std::vector<Tensor> results;
    for (const std::size_t s : floats) results.push_back(made.nexts[s]);
    tape.close(results);
    return tape.pull(cotangents);
  };
  Tensors out;
  if (taken.rank() == 0) {  // nothing is computed of a branch that is not taken
    Tensors state{taken};
    state.insert(state.end(), carry.begin(), carry.end());
    for (const std::size_t k : outside) state.push_back(zeros_of(operands_[k]->dims(), *operands_[k]));
    const auto count = static_cast<std::ptrdiff_t>(floats.size());
    out = while_loop([](const Tensors& s) { return s[0]; },
                     [&](const Tensors& s) {
                       Tensors next = back({s.begin() + 1, s.begin() + 1 + count});
                       next.insert(next.begin(), zeros_like(s[0]));
                       return next;
                     },
                     state);
    out.erase(out.begin());
  } else {  // a body may read other elements than it makes, also those where the branch is not taken
    Tensors masked;
    for (const Tensor& each : carry) masked.push_back(where(taken, each, 0.0));
    out = back(masked);
    for (std::size_t i = 0; i < floats.size(); ++i) out[i] = out[i] + where(taken, 0.0, carry[i]);
  }
  std::vector<Tensor> to(operands_.size());
  for (std::size_t i = 0; i < floats.size(); ++i) to[floats[i]] = out[i];
  for (std::size_t i = 0; i < outside.size(); ++i) to[outside[i]] = out[floats.size() + i];
  return to;
}

std::vector<Tensor> LoopRule::pull_counted(std::span<const Tensor> g, const std::vector<bool>& wanted) const {
  const std::size_t states = states_.size();
  const auto given = [&](std::size_t i) { return i < g.size() ? g[i] : Tensor(); };
  Tensors carry, xs = stacked_states();
  std::vector<std::size_t> floats, outside;  // states that carry; wanted operands that are no states
  for (std::size_t s = 0; s < states; ++s)
    if (carries(*states_[s])) {
      floats.push_back(s);
      const Tensor last = given(s);
      carry.push_back(last.valid() ? last : zeros_of(states_[s]->dims(), *states_[s]));
    }
  for (std::size_t k = states; k < operands_.size(); ++k)
    if (wanted[k]) {
      outside.push_back(k);
      carry.push_back(zeros_of(operands_[k]->dims(), *operands_[k]));
    }
  std::vector<std::size_t> kept;
  for (std::size_t y = 0; y < yields_.size(); ++y)
    if (given(states + y).valid()) {
      kept.push_back(y);
      xs.push_back(given(states + y));
    }
  const Scanned out = scan(
      [&](const Tensors& now, const Tensors& at) {
        Tape tape("scan");
        Values values;
        for (std::size_t s = 0; s < states; ++s)
          values[states_[s].get()] = carries(*states_[s]) ? alias_of(tape, at[s]) : at[s];
        for (const std::size_t k : outside) tape.cut_at(operands_[k]);
        const Made made = replayed(std::move(values));
        std::vector<Tensor> results, cotangents;
        for (std::size_t i = 0; i < floats.size(); ++i) {
          results.push_back(made.nexts[floats[i]]);
          cotangents.push_back(now[i]);
        }
        for (std::size_t i = 0; i < kept.size(); ++i) {
          results.push_back(made.yields[kept[i]]);
          cotangents.push_back(at[states + i]);
        }
        tape.close(results);
        Tensors back = tape.pull(cotangents);
        for (std::size_t i = floats.size(); i < back.size(); ++i) back[i] = now[i] + back[i];
        return Scanned{std::move(back), {}};
      },
      carry, xs, 0, true);
  std::vector<Tensor> to(operands_.size());
  for (std::size_t i = 0; i < floats.size(); ++i) to[floats[i]] = out.carry[i];
  for (std::size_t i = 0; i < outside.size(); ++i) to[outside[i]] = out.carry[floats.size() + i];
  return to;
}

std::vector<Tensor> LoopRule::push(std::span<const Tensor> t) const {
  std::vector<NodeRef> states, nexts, yields;  // tangents first: a counter is the last state
  NodeRef condition;
  std::vector<int> tangent_of(states_.size() + yields_.size(), -1);
  const api::Recording recording;
  {
    const ir::UnnotedRecording unnoted;
    Tape tape("jvp");
    Values values;
    std::vector<Tensor> along, results;
    std::vector<NodeRef> plain;
    for (std::size_t s = 0; s < states_.size(); ++s) {
      plain.push_back(api::loop_state_node(operands_[s].get()));
      values[states_[s].get()] = shared(plain.back());
      if (!carries(*states_[s])) continue;
      tangent_of[s] = static_cast<int>(states.size());
      const Tensor first = t[s].valid() ? t[s] : zeros_of(states_[s]->dims(), *states_[s]);
      states.push_back(api::loop_state_node(api::broadcast_node(first.node(), states_[s]->dims()).get()));
      values[states_[s].get()] = alias_of(tape, shared(plain.back()));
      along.push_back(shared(states.back()));
    }
    for (std::size_t k = states_.size(); k < operands_.size(); ++k)
      if (t[k].valid()) {
        tape.cut_at(operands_[k]);
        along.push_back(t[k]);
      }
    const Made made = replayed(std::move(values));
    for (std::size_t s = 0; s < states_.size(); ++s)
      if (tangent_of[s] >= 0) results.push_back(made.nexts[s]);
    for (std::size_t y = 0; y < yields_.size(); ++y)
      if (carries(*yields_[y])) results.push_back(made.yields[y]);
    tape.close(results);
    const std::vector<Tensor> moved = tape.push(along);
    nexts = nodes_of(std::span(moved).first(states.size()));
    yields = nodes_of(std::span(moved).subspan(states.size()));
    for (std::size_t y = 0, at = 0; y < yields_.size(); ++y)
      if (carries(*yields_[y])) tangent_of[states_.size() + y] = static_cast<int>(at++);
    states.insert(states.end(), plain.begin(), plain.end());
    for (const Tensor& n : made.nexts) nexts.push_back(NodeRef::share(n.node()));
    condition = NodeRef::share(made.condition.node());
  }
  const api::LoopNodes made = api::loop_nodes(states, nexts, condition.get(), yields, count_);
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < tangent_of.size(); ++i) {
    const auto at = static_cast<std::size_t>(tangent_of[i]);
    if (tangent_of[i] < 0)
      out.emplace_back();
    else
      out.push_back(finish(i < states_.size() ? made.results[at] : made.stacks[at]));
  }
  return out;
}

}  // namespace kiln::diff
