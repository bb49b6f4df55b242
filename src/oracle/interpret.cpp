#include "oracle/interpret.h"

#include "ir/loops.h"
#include "oracle/interpret_element.h"
#include "oracle/interpret_faults.h"
#include "oracle/interpret_value.h"
#include "oracle/reference.h"
#include "support/check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <optional>

namespace kiln::ir {
namespace {

using oracle::Cursor;
using oracle::load;
using oracle::narrow;
using oracle::store;
using oracle::Sum;
using oracle::Value;
using oracle::widen;

Value cast(const GraphNode& node, const Value& x) {
  Value out = oracle::new_value(node.dtype, node.dims);
  dispatch_stored(x.dtype, [&]<class From>() {
    dispatch_stored(node.dtype, [&]<class To>() {
      Cursor cursor(x);
      for (std::int64_t i = 0, offset = 0; i < node.numel; ++i) {
        cursor.take(&offset, 1);
        store(out, i, ref::cast<To>(load<From>(x, offset)));
      }
    });
  });
  return out;
}

Value bitcast(const GraphNode& node, const Value& x) {
  Value out = oracle::densified(x);
  out.dtype = node.dtype;
  return out;
}

Value iota(const GraphNode& node) {
  Value out = oracle::new_value(node.dtype, node.dims);
  const std::size_t axis = attributes<Iota>(node).axis;
  const std::int64_t extent = node.dims[axis];
  std::int64_t inner = 1;
  for (std::size_t i = axis + 1; i < node.dims.size(); ++i) inner *= node.dims[i];
  dispatch(node.dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < node.numel; ++i) store(out, i, ref::cast<T>(i / inner % extent));
  });
  return out;
}

Value scalar(const GraphNode& node, std::uint64_t bits) {
  Value out = oracle::new_value(node.dtype, {});
  std::memcpy(out.writable(), &bits, static_cast<std::size_t>(size_of(node.dtype)));
  return oracle::broadcast(out, node.dims);
}

Value leaf(const GraphNode& node, const ArgInfo& info, const ArgData& data) {
  Value v;
  v.dtype = node.dtype;
  v.dims.assign(info.dims.begin(), info.dims.end());
  v.strides.assign(info.strides.begin(), info.strides.end());
  v.data = data.data;
  return v;
}

template <class S>
void multiply_matrices(const Value& x, const Value& y, std::int64_t m, std::int64_t k, std::int64_t n,
                       Value& out, std::int64_t x_at, std::int64_t y_at, std::int64_t out_at) {
  std::vector<Sum<S>> row(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < m; ++i) {
    std::ranges::fill(row, Sum<S>(0));
    for (std::int64_t j = 0; j < k; ++j) {
      const Sum<S> a = widen(load<S>(x, x_at + i * k + j));
      for (std::int64_t c = 0; c < n; ++c)
        row[static_cast<std::size_t>(c)] += a * widen(load<S>(y, y_at + j * n + c));
    }
    for (std::int64_t c = 0; c < n; ++c)
      store(out, out_at + i * n + c, narrow<S>(row[static_cast<std::size_t>(c)]));
  }
}

Value matmul(const GraphNode& node, const Value& lhs, const Value& rhs) {
  const Value x = oracle::densified(lhs), y = oracle::densified(rhs);
  Value out = oracle::new_value(node.dtype, node.dims);
  const std::size_t rank = node.dims.size();
  const std::int64_t m = node.dims[rank - 2], n = node.dims[rank - 1], k = x.dims[rank - 1];
  const std::int64_t groups = m * n == 0 ? 0 : node.numel / (m * n);
  dispatch(node.dtype, [&]<class S>() {
    for (std::int64_t g = 0; g < groups; ++g)
      multiply_matrices<S>(x, y, m, k, n, out, g * m * k, g * k * n, g * m * n);
  });
  return out;
}

class Interpreter {
 public:
  Interpreter(const Graph& graph, std::span<const ArgData> args, std::span<const std::uint64_t> slots,
              bool check_bounds)
      : g_(graph), args_(args), slots_(slots), loops_(find_loops(graph)), values_(graph.size()) {
    if (check_bounds) faults_.emplace(graph, loops_);
  }

  const Value& value(NodeId id) const { return values_[id]; }

  void run() {
    std::vector<NodeId> last_use(g_.size(), 0);
    for (NodeId id = 0; id < g_.size(); ++id) {
      last_use[id] = id;
      for (const NodeId in : g_[id].in) last_use[in] = id;
    }
    for (NodeId root : g_.roots) last_use[root] = g_.size();
    for (NodeId id = 0; id < g_.size(); ++id) {
      if (loops_.owner_of(id) == kNoNode) compute(id);
      if (loops_.any()) continue;
      for (const NodeId in : g_[id].in)
        if (last_use[in] == id) values_[in] = {};
    }
  }

 private:
  void compute(NodeId id) {
    if (faults_) faults_->begin(id);
    values_[id] = evaluate(id);
    if (faults_ && faults_->collects(id)) faults_->spread(id, values_);
  }

  /// What is done about an index of this node that is out of range.
  oracle::OutOfRange out_of_range(NodeId id) {
    if (!faults_) return nullptr;
    return [this, id](std::int64_t element, const std::string& error) {
      if (!faults_->collects(id)) throw UserError(error);
      faults_->add(id, g_[id].op == Op::scatter ? oracle::Faults::kEvery : element, error);
    };
  }

  /// Per node: whether a loop's condition needs it.
  const std::vector<bool>& tested(const LoopParts& l) {
    std::vector<bool>& needed = tested_[l.node];
    if (!needed.empty()) return needed;
    needed.assign(g_.size(), false);
    needed[l.condition] = true;
    for (NodeId id = l.condition + 1; id-- > 0;)
      if (needed[id])
        for (const NodeId in : g_[id].in) needed[in] = true;
    return needed;
  }

  /// Computes those nodes of a loop's body that its condition needs, or the others.
  void run_body(const LoopParts& l, bool for_condition) {
    const std::vector<bool>& needed = tested(l);
    for (NodeId id : l.body)
      if (loops_.owner[id] == l.node && g_[id].op != Op::loop_state && needed[id] == for_condition)
        compute(id);
  }

  /// Runs a loop; its states' values stay, and those of its stacks. The body follows its condition, and only
  /// if that holds somewhere: a loop inside it need not end when it does not.
  void loop(const LoopParts& l) {
    for (NodeId state : l.states) values_[state] = oracle::densified(values_[g_[state].in[0]]);
    if (faults_) faults_->enter(l);
    std::vector<Value>& stacks = stacks_[l.node];
    stacks.clear();
    for (NodeId yield : l.yields) {
      std::vector<std::int64_t> dims(g_[yield].dims.begin(), g_[yield].dims.end());
      dims.insert(dims.begin(), l.count);
      stacks.push_back(oracle::new_value(g_[yield].dtype, dims));
    }
    for (std::int64_t iteration = 0;; ++iteration) {
      run_body(l, true);
      const Value goes_on = values_[l.condition];
      if (faults_) faults_->decide(l);
      if (!any_true(goes_on)) return;
      run_body(l, false);
      if (faults_) faults_->take(l, goes_on, iteration);
      for (std::size_t y = 0; y < l.yields.size(); ++y) {
        const Value v = oracle::densified(values_[l.yields[y]]);
        const auto bytes = static_cast<std::size_t>(v.numel() * size_of(v.dtype));
        if (bytes != 0)
          std::memcpy(stacks[y].writable() + static_cast<std::size_t>(iteration) * bytes, v.data, bytes);
      }
      std::vector<Value> next;
      for (std::size_t i = 0; i < l.states.size(); ++i)
        next.push_back(chosen(oracle::broadcast(goes_on, g_[l.states[i]].dims), values_[l.nexts[i]],
                              values_[l.states[i]]));
      for (std::size_t i = 0; i < l.states.size(); ++i) values_[l.states[i]] = next[i];
    }
  }

  static bool any_true(const Value& v) {
    const Value dense = oracle::densified(v);
    for (std::int64_t i = 0; i < dense.numel(); ++i)
      if (dense.data[i] != std::byte{0}) return true;
    return false;
  }

  /// a where c is true, else b.
  static Value chosen(const Value& c, const Value& a, const Value& b) {
    Value out = oracle::new_value(a.dtype, a.dims);
    const std::int64_t bytes = size_of(a.dtype);
    Cursor cs(c), as(a), bs(b);
    for (std::int64_t i = 0, n = out.numel(), at = 0, from = 0, other = 0; i < n; ++i) {
      cs.take(&at, 1);
      as.take(&from, 1);
      bs.take(&other, 1);
      const bool takes = c.data[at] != std::byte{0};
      std::memcpy(out.writable() + i * bytes, takes ? a.data + from * bytes : b.data + other * bytes,
                  static_cast<std::size_t>(bytes));
    }
    return out;
  }

  Value evaluate(NodeId id) {
    const GraphNode& node = g_[id];
    const auto in = [&](std::size_t i) -> const Value& { return values_[node.in[i]]; };
    switch (info(node.op).kind) {
      case OpKind::Leaf:
        return leaf(node, g_.args[static_cast<std::size_t>(node.arg)],
                    args_[static_cast<std::size_t>(node.arg)]);
      case OpKind::Scalar:
        return scalar(node, node.op == Op::constant ? attributes<Constant>(node).bits
                                                    : slots_[static_cast<std::size_t>(node.arg)]);
      case OpKind::Iota: return iota(node);
      case OpKind::Cast:
        if (node.op == Op::bitcast) return bitcast(node, oracle::broadcast(in(0), node.dims));
        return cast(node, oracle::broadcast(in(0), node.dims));
      case OpKind::Reduce: return oracle::reduce(node, in(0));
      case OpKind::Scan: return oracle::scan(node, in(0));
      case OpKind::Gather:
        return oracle::gather(node, in(0), oracle::broadcast(in(1), node.dims), out_of_range(id));
      case OpKind::Contraction: return matmul(node, in(0), in(1));
      case OpKind::Library:
        if (node.op == Op::scatter)
          return oracle::scatter(node, in(0), oracle::broadcast(in(1), in(2).dims), in(2), out_of_range(id));
        if (has(node.op, BUNDLE)) {
          std::vector<Value> operands;
          for (const NodeId operand : node.in) operands.push_back(values_[operand]);
          results_[id] = oracle::library_results(node, operands);
          return results_[id][0];
        }
        return oracle::library(node, in(0), node.in.size() > 1 ? in(1) : Value{});
      case OpKind::Part: return results_.at(node.in[0])[attributes<Part>(node).index];
      case OpKind::LoopState:
      case OpKind::LoopNext: return {};
      case OpKind::Loop: loop(loops_.of(id)); return {};
      case OpKind::LoopResult:
        return values_[loops_.of_result(g_, id).states[attributes<LoopResult>(node).index]];
      case OpKind::LoopStack: return stacks_.at(node.in[0])[attributes<LoopResult>(node).index];
      case OpKind::Elementwise: {
        Value operands[3];
        for (std::size_t i = 0; i < node.in.size(); ++i) operands[i] = oracle::broadcast(in(i), node.dims);
        return oracle::elementwise(node, operands);
      }
      case OpKind::View: {
        std::vector<Value> operands;
        for (const NodeId operand : node.in) operands.push_back(values_[operand]);
        return oracle::view(node, operands);
      }
    }
    KILN_CHECK_THAT(false, info(node.op).name);
    return {};
  }

  const Graph& g_;
  std::span<const ArgData> args_;
  std::span<const std::uint64_t> slots_;
  Loops loops_;
  std::vector<Value> values_;
  std::map<NodeId, std::vector<Value>> stacks_;  // of each loop: one value of each of its yields an iteration
  std::map<NodeId, std::vector<Value>> results_;  // of each op of several results
  std::map<NodeId, std::vector<bool>> tested_;    // of each loop
  std::optional<oracle::Faults> faults_;          // where indices are checked
};

}  // namespace

std::vector<std::vector<std::byte>> interpret(const Graph& graph, std::span<const ArgData> args,
                                              std::span<const std::uint64_t> slots, bool check_bounds) {
  Interpreter run(graph, args, slots, check_bounds);
  run.run();
  std::vector<std::vector<std::byte>> out;
  for (NodeId root : graph.roots) {
    const Value v = oracle::densified(run.value(root));
    const auto bytes = static_cast<std::size_t>(graph[root].numel * size_of(graph[root].dtype));
    std::vector<std::byte>& copy = out.emplace_back(bytes);
    if (bytes != 0) std::memcpy(copy.data(), v.data, bytes);
  }
  return out;
}

}  // namespace kiln::ir
