#include "vmap/replay.h"

#include "ir/infer.h"
#include "record/step_alias.h"
#include "vmap/mapped_call.h"
#include "vmap/recorder.h"

#include <algorithm>
#include <cstring>

namespace kiln::mapped {

using ir::Node;
using ir::NodeRef;
using ir::Op;

void Replay::put(Node* example, Value v) {
  held_.push_back(NodeRef::share(example));
  values_[example] = std::move(v);
}

const Value* Replay::find(const Node* example) const {
  const auto found = values_.find(example);
  if (found != values_.end()) return &found->second;
  return outer_ ? outer_->find(example) : nullptr;
}

Value Replay::value(Node* example) const {
  if (example == nullptr) return {};
  const Value* const known = find(example);
  return known ? *known : Value{NodeRef::share(example), false};
}

std::vector<Value> Replay::values(std::span<Node* const> results) {
  Recorder(*this, list_dependents(results, [this](const Node* n) { return find(n) != nullptr; })).run();
  std::vector<Value> out;
  for (Node* const r : results) out.push_back(value(r));
  return out;
}

Recorder::Recorder(Replay& to, Dependents list) : to_(to), list_(std::move(list)) {
  find_mapped();
  for (const auto& [node, parts] : list_.loops) {
    Loop& loop = loops_[node];
    loop.parts = &parts;
    if (!is_mapped(parts.condition)) continue;
    loop.rank = 0;
    for (const Node* state : parts.states) loop.rank = std::max<std::size_t>(*loop.rank, state->rank);
  }
}

void Recorder::run() {
  for (const NodeRef& n : list_.nodes) record(n.get());
}

bool Recorder::is_mapped(const Node* n) const {
  if (n == nullptr) return false;
  const Value* const known = to_.find(n);
  return known ? known->mapped : mapped_.contains(n);
}

/// A node differs between examples if it reads one that does. All results of a call do, for its derivative.
bool Recorder::reads_mapped(const Node& n) const {
  if (list_.calls.contains(&n)) return true;
  if (n.op == Op::loop_result || n.op == Op::loop_stack) {
    const auto found = list_.loops.find(ir::operands(n)[0]);
    if (found == list_.loops.end()) return false;
    const auto& of = n.op == Op::loop_result ? found->second.states : found->second.yields;
    return is_mapped(of[of.size() - 1 - ir::attributes<ir::LoopResult>(n).index]);
  }
  return std::ranges::any_of(ir::operands(n), [&](const Node* in) { return is_mapped(in); });
}

/// States may come to differ by their next values: so this goes on until nothing is added.
void Recorder::find_mapped() {
  do {
    for (const NodeRef& n : list_.nodes)
      if (reads_mapped(*n)) mapped_.insert(n.get());
  } while (find_mapped_states());
}

bool Recorder::find_mapped_states() {
  bool more = false;
  for (const auto& [node, parts] : list_.loops)
    for (std::size_t s = 0; s < parts.states.size(); ++s)
      if (is_mapped(parts.nexts[s]) || is_mapped(parts.condition))
        more |= mapped_.insert(parts.states[s]).second;
  return more;
}

void Recorder::record(Node* n) {
  if (to_.find(n)) return;  // a result of a call whose other results are there
  const CallScope scope(ir::info(n->op).name, n->loc);
  if (const auto call = list_.calls.find(n); call != list_.calls.end())
    record_call(*call->second);
  else if (!rule_of(n->op).loop_part)
    record_operation(n);
  else if (n->op == Op::loop_state)
    open_loop(n);
  else if (n->op == Op::loop)
    close_loop(n);
  else if (n->op == Op::loop_result || n->op == Op::loop_stack)
    take_result(n);
}

namespace {

/// The operation on other operands of the same shapes: the examples do not differ.
NodeRef copied(const Node& n, std::span<const Value> in) {
  NodeRef out = NodeRef::adopt(ir::new_node(n.op, n.dtype, n.dims()));
  std::vector<Node*> nodes;
  for (const Value& v : in) nodes.push_back(v.node.get());
  ir::set_inputs(out.get(), nodes);
  out->imm = n.imm;
  out->attr64 = n.attr64;
  if (n.n_attrs > 0)
    std::memcpy(ir::new_attrs(out.get(), n.n_attrs), n.attrs, n.n_attrs * sizeof(std::int64_t));
  return out;
}

NodeRef zero(const Node& like) { return api::scalar_node(0, like.dtype); }

/// One example; where there are none, zeros, which nobody computes.
NodeRef example_of(const Value& v, std::int64_t i) {
  if (!v.mapped) return v.node;
  if (v.node->dims()[0] == 0) return api::broadcast_node(zero(*v.node).get(), v.node->dims().subspan(1));
  Shape first, step, dims = v.node->shape();
  first.resize(dims.rank(), 0);
  step.resize(dims.rank(), 1);
  first[0] = i;
  dims[0] = 1;
  const NodeRef row = api::slice_node(v.node.get(), first, step, dims);
  return api::reshape_node(row.get(), v.node->dims().subspan(1));
}

}  // namespace

/// One call for each example of an operation of several results, which parts show.
void Recorder::record_each(const Node& n, std::span<const Value> in) {
  std::vector<std::vector<NodeRef>> rows(ir::attributes<ir::Custom>(n).results);  // by result
  for (std::int64_t i = 0; i < std::max<std::int64_t>(to_.count(), 1); ++i) {
    std::vector<Value> one;
    for (const Value& v : in) one.push_back({example_of(v, i), false});
    const std::vector<NodeRef> parts = api::part_nodes(copied(n, one), rows.size());
    for (std::size_t r = 0; r < rows.size(); ++r) rows[r].push_back(repeated(parts[r].get(), 1));
  }
  std::vector<NodeRef>& all = each_[&n];
  for (const std::vector<NodeRef>& row : rows) {
    const Shape dims = ir::stacked_dims(to_.count(), row[0]->dims().subspan(1));
    all.push_back(to_.count() > 0 ? api::join_node(row, 0, dims)
                                  : api::broadcast_node(zero(*row[0]).get(), dims));
  }
}

void Recorder::record_operation(Node* n) {
  std::vector<Value> in;
  for (Node* const operand : ir::operands(*n)) in.push_back(to_.value(operand));
  if (is_mapped(n) && rule_of(n->op).each) return record_each(*n, in);
  Value out;
  out.mapped = is_mapped(n);
  if (const auto made = n->op == Op::part ? each_.find(ir::operands(*n)[0]) : each_.end();
      made != each_.end())
    out.node = made->second[ir::attributes<ir::Part>(*n).index];
  else
    out.node = out.mapped ? rule_of(n->op).map({*n, in, to_.count()}) : copied(*n, in);
  finish(out);
  to_.put(n, std::move(out));
}

void Recorder::record_call(const ir::Call& call) {
  auto now = std::make_shared<ir::Call>();
  std::vector<bool> mapped;
  for (const NodeRef& in : call.in) {
    Value v = to_.value(in.get());
    mapped.push_back(v.mapped);
    now->in.push_back(std::move(v.node));
  }
  for (const NodeRef& out : call.out) {
    Node* const made = ir::op_now(out.get()) == Op::alias ? ir::operands(*out)[0] : out.get();
    const Value result{api::alias_node(to_.all(to_.value(made)).get(), false), true};
    ir::mark_inside_step(result.node.get());
    finish(result);
    now->out.push_back(result.node);
    to_.put(out.get(), result);
  }
  now->rule = mapped_rule(call, to_.shared_from_this(), std::move(mapped));
  ir::keep_call(std::move(now));
}

void Recorder::finish(const Value& v) {
  if (ir::has_value(v.node->op)) api::finish(v.node);
}

}  // namespace kiln::mapped
