#include "oracle/interpret_faults.h"

#include "oracle/interpret_element.h"
#include "support/check.h"

#include <algorithm>
#include <cstring>

namespace kiln::ir::oracle {

Faults::Faults(const Graph& graph, const Loops& loops)
    : g_(graph), loops_(loops), collects_(graph.size(), false), of_(graph.size()) {
  if (!loops.any()) return;
  std::vector<bool> used(g_.size()), wanted(g_.size());  // by somebody, by somebody who is no loop's body
  for (NodeId root : g_.roots) wanted[root] = true;
  for (NodeId id = g_.size(); id-- > 0;) {
    collects_[id] = loops_.owner_of(id) != kNoNode || (used[id] && !wanted[id]);
    const bool first_value = g_[id].op == Op::loop_state && !collects_[loops_.owner_of(id)];
    for (const NodeId in : g_[id].in) {
      used[in] = true;
      if (!collects_[id] || first_value) wanted[in] = true;
    }
  }
}

void Faults::add(NodeId id, std::int64_t element, const std::string& error) {
  const auto [it, fresh] = numbers_.try_emplace(error, static_cast<std::int32_t>(errors_.size()) + 1);
  if (fresh) errors_.push_back(error);
  if (element == kEvery) {
    of_[id] = every(id, it->second);
    return;
  }
  if (!any(of_[id])) of_[id] = none_of(id);
  store(of_[id], element, it->second);
}

void Faults::spread(NodeId id, const std::vector<Value>& values) {
  const GraphNode& n = g_[id];
  switch (info(n.op).kind) {
    case OpKind::LoopResult:
      of_[id] = of_[loops_.of_result(g_, id).states[attributes<LoopResult>(n).index]];
      return;
    case OpKind::LoopStack:
      if (const auto it = stacks_.find(n.in[0]); it != stacks_.end())
        of_[id] = it->second[attributes<LoopResult>(n).index];
      return;
    case OpKind::Leaf:
    case OpKind::Scalar:
    case OpKind::Iota:
    case OpKind::LoopState:
    case OpKind::LoopNext:
    case OpKind::Loop: return;
    case OpKind::Cast:
    case OpKind::Elementwise:
    case OpKind::View:
    case OpKind::Reduce:
    case OpKind::Scan:
    case OpKind::Gather:
    case OpKind::Contraction:
    case OpKind::Library:
    case OpKind::Part:
      if (std::ranges::any_of(n.in, [&](NodeId in) { return any(of_[in]); })) spread_operands(id, values);
      return;
  }
}

/// Of an operation, some of whose operands have faults.
void Faults::spread_operands(NodeId id, const std::vector<Value>& values) {
  GraphNode n = g_[id];
  n.dtype = DType::Int32;
  Value& out = of_[id];
  const auto in = [&](std::size_t k) { return faults_or_none(n.in[k]); };
  switch (info(n.op).kind) {
    case OpKind::Cast:
    case OpKind::Elementwise:
      for (std::size_t k = 0; k < n.in.size(); ++k) merge(out, broadcast(in(k), n.dims));
      return;
    case OpKind::View: {
      std::vector<Value> operands;
      for (std::size_t k = 0; k < n.in.size(); ++k) operands.push_back(in(k));
      if (n.op == Op::slice_at || n.op == Op::update_at) {  // the start says where the others' elements go
        const std::size_t start = n.in.size() - 1;
        merge(out, broadcast(in(start), n.dims));
        operands[start] = values[n.in[start]];
      }
      merge(out, view(n, operands));
      return;
    }
    case OpKind::Reduce:
      n.op = Op::reduce_max;
      merge(out, reduce(n, in(0)));
      return;
    case OpKind::Scan:
      n.op = Op::scan_max;
      merge(out, scan(n, in(0)));
      return;
    case OpKind::Gather:
      merge(out, gather(n, in(0), broadcast(values[n.in[1]], n.dims), nullptr));
      merge(out, broadcast(in(1), n.dims));
      return;
    case OpKind::Contraction:
    case OpKind::Library:
    case OpKind::Part:
      for (std::size_t k = 0; k < n.in.size(); ++k) {
        const Value f = densified(in(k));
        for (std::int64_t i = 0; i < f.numel(); ++i)
          if (const auto error = load<std::int32_t>(f, i); error > 0) {
            out = every(id, error);
            return;
          }
      }
      return;
    case OpKind::Leaf:
    case OpKind::Scalar:
    case OpKind::Iota:
    case OpKind::LoopState:
    case OpKind::LoopNext:
    case OpKind::Loop:
    case OpKind::LoopResult:
    case OpKind::LoopStack: return;
  }
}

Value Faults::every(NodeId id, std::int32_t error) const {
  Value v = none_of(id);
  for (std::int64_t i = 0; i < g_[id].numel; ++i) store(v, i, error);
  return v;
}

/// The greater number of both, element by element: where only one is an error, that.
void Faults::merge(Value& into, const Value& more) const {
  if (!any(into)) {
    into = densified(more);
    return;
  }
  Value out = new_value(DType::Int32, into.dims);
  Cursor as(into), bs(more);
  for (std::int64_t i = 0, a = 0, b = 0, n = out.numel(); i < n; ++i) {
    as.take(&a, 1);
    bs.take(&b, 1);
    store(out, i, std::max(load<std::int32_t>(into, a), load<std::int32_t>(more, b)));
  }
  into = std::move(out);
}

/// Throws the first error, of the elements where `where` holds.
void Faults::fail_of(const Value& faults, const Value* where) const {
  if (!any(faults)) return;
  const Value all = densified(faults);
  const Value chosen = where ? densified(broadcast(*where, all.dims)) : Value();
  for (std::int64_t i = 0; i < all.numel(); ++i)
    if (const auto error = load<std::int32_t>(all, i);
        error > 0 && (!where || chosen.data[i] != std::byte{0}))
      throw UserError(errors_[static_cast<std::size_t>(error) - 1]);
}

void Faults::enter(const LoopParts& l) {
  for (NodeId state : l.states) of_[state] = of_[g_[state].in[0]];
  stacks_.erase(l.node);
}

void Faults::decide(const LoopParts& l) {
  if (!any(of_[l.condition])) return;
  if (!collects_[l.node]) return fail_of(of_[l.condition]);
  for (NodeId state : l.states) merge(of_[state], broadcast(of_[l.condition], g_[state].dims));
}

void Faults::take(const LoopParts& l, const Value& goes_on, std::int64_t iteration) {
  if (!collects_[l.node]) {
    for (NodeId next : l.nexts) fail_of(of_[next], &goes_on);
    for (NodeId yield : l.yields) fail_of(of_[yield]);
    return;
  }
  std::vector<Value> next;
  for (std::size_t i = 0; i < l.states.size(); ++i) {
    Value& v = next.emplace_back();
    if (!any(of_[l.nexts[i]]) && !any(of_[l.states[i]])) continue;
    const Value taken = faults_or_none(l.nexts[i]), stays = faults_or_none(l.states[i]);
    const Value where = densified(broadcast(goes_on, stays.dims));
    v = none_of(l.states[i]);
    Cursor ts(taken), ss(stays);
    for (std::int64_t e = 0, t = 0, s = 0; e < v.numel(); ++e) {
      ts.take(&t, 1);
      ss.take(&s, 1);
      store(v, e,
            where.data[e] != std::byte{0} ? load<std::int32_t>(taken, t) : load<std::int32_t>(stays, s));
    }
    if (any(of_[l.condition])) merge(v, broadcast(of_[l.condition], v.dims));
  }
  for (std::size_t i = 0; i < l.states.size(); ++i) of_[l.states[i]] = std::move(next[i]);
  for (std::size_t y = 0; y < l.yields.size(); ++y) {
    if (!any(of_[l.yields[y]])) continue;
    std::vector<Value>& stacks = stacks_[l.node];
    stacks.resize(l.yields.size());
    std::vector<std::int64_t> dims(g_[l.yields[y]].dims.begin(), g_[l.yields[y]].dims.end());
    dims.insert(dims.begin(), l.count);
    if (!any(stacks[y])) stacks[y] = new_value(DType::Int32, dims);
    const Value row = densified(of_[l.yields[y]]);
    const auto bytes = static_cast<std::size_t>(row.numel()) * sizeof(std::int32_t);
    if (bytes != 0)
      std::memcpy(stacks[y].writable() + static_cast<std::size_t>(iteration) * bytes, row.data, bytes);
  }
}

}  // namespace kiln::ir::oracle
