#include "ir/interpret.h"

#include "ir/joined_index.h"

#include "ir/interpret_element.h"
#include "ir/interpret_value.h"
#include "ir/loops.h"
#include "ir/reference.h"
#include "support/check.h"

#include <kiln/combine.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>

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
  dispatch(x.dtype, [&]<class From>() {
    dispatch(node.dtype, [&]<class To>() {
      Cursor cursor(x);
      for (std::int64_t i = 0, offset = 0; i < node.numel; ++i) {
        cursor.take(&offset, 1);
        store(out, i, ref::cast<To>(load<From>(x, offset)));
      }
    });
  });
  return out;
}

Value iota(const GraphNode& node) {
  Value out = oracle::new_value(node.dtype, node.dims);
  const std::int64_t extent = node.dims[node.attr64];
  std::int64_t inner = 1;
  for (std::size_t i = node.attr64 + 1; i < node.dims.size(); ++i) inner *= node.dims[i];
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

Value reshape(const GraphNode& node, const Value& x) {
  Value out = oracle::new_value(node.dtype, {});
  const Value flat = oracle::densified(x);
  out = flat;
  out.dims.assign(node.dims.begin(), node.dims.end());
  out.strides.assign(node.dims.size(), 1);
  for (std::size_t i = node.dims.size(); i-- > 1;) out.strides[i - 1] = out.strides[i] * node.dims[i];
  return out;
}

Value permute(const GraphNode& node, const Value& x) {
  Value out = x;
  for (std::size_t i = 0; i < node.dims.size(); ++i) {
    const std::size_t from = (node.attr64 >> (4 * i)) & 15;
    out.dims[i] = x.dims[from];
    out.strides[i] = x.strides[from];
  }
  return out;
}

Value slice(const GraphNode& node, const Value& x) {
  Value out = x;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < node.dims.size(); ++i) {
    first += node.attrs[2 * i] * x.strides[i];
    out.strides[i] = node.attrs[2 * i + 1] * x.strides[i];
    out.dims[i] = node.dims[i];
  }
  if (node.numel != 0) out.data += first * size_of(x.dtype);
  return out;
}

Value pad(const GraphNode& node, const Value& body, const Value& fill) {
  // densified may share the fill's memory: write into a copy.
  const Value source = oracle::densified(oracle::broadcast(fill, node.dims));
  Value out = oracle::new_value(node.dtype, node.dims);
  const std::int64_t bytes = size_of(node.dtype);
  if (node.numel != 0) std::memcpy(out.writable(), source.data, static_cast<std::size_t>(node.numel * bytes));
  Value place = out;  // the elements the body covers
  std::int64_t first = 0;
  for (std::size_t i = 0; i < node.dims.size(); ++i) {
    first += node.attrs[2 * i] * out.strides[i];
    place.strides[i] = node.attrs[2 * i + 1] * out.strides[i];
    place.dims[i] = body.dims[i];
  }
  Cursor from(body), to(place);
  for (std::int64_t i = 0, count = body.numel(), a = 0, b = 0; i < count; ++i) {
    from.take(&a, 1);
    to.take(&b, 1);
    std::memcpy(out.writable() + (first + b) * bytes, body.data + a * bytes, static_cast<std::size_t>(bytes));
  }
  return out;
}

/// The first of `size` adjacent elements out of `extent`, moved to where they all are.
std::int64_t position(std::uint64_t attr64, const Value& start, std::int64_t extent, std::int64_t size) {
  std::int64_t at = 0;
  std::memcpy(&at, start.data, sizeof at);
  if (at < 0 && counts_from_back(attr64)) at += extent;
  return std::max<std::int64_t>(0, std::min(at, extent - size));
}

Value slice_at(const GraphNode& node, const Value& x, const Value& start) {
  const std::size_t axis = position_axis(node.attr64);
  Value out = x;
  out.dims[axis] = node.dims[axis];
  if (node.numel != 0) out.data += position(node.attr64, start, x.dims[axis], node.dims[axis]) * x.strides[axis] * size_of(x.dtype);
  return out;
}

Value update_at(const GraphNode& node, const Value& update, const Value& x, const Value& start) {
  const std::size_t axis = position_axis(node.attr64);
  std::vector<std::int64_t> attrs(2 * node.dims.size());
  for (std::size_t a = 0; a < node.dims.size(); ++a) attrs[2 * a + 1] = 1;
  attrs[2 * axis] = position(node.attr64, start, x.dims[axis], update.dims[axis]);
  GraphNode placed = node;
  placed.attrs = attrs;
  return pad(placed, update, x);
}

/// A position along an axis of this extent: negative indices count from the back; -1 when there is none.
std::int64_t resolve_index(DType type, const Value& indices, std::int64_t offset, std::int64_t extent) {
  return dispatch(type, [&]<class T>() -> std::int64_t {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      const T i = load<T>(indices, offset);
      if constexpr (std::is_signed_v<T>) {
        const std::int64_t at = i < 0 ? std::int64_t{i} + extent : std::int64_t{i};
        return at < extent ? std::max<std::int64_t>(at, -1) : -1;
      } else {
        return i < static_cast<std::uint64_t>(extent) ? static_cast<std::int64_t>(i) : -1;
      }
    }
    KILN_CHECK_THAT(false, "index of ", name(type));
    return -1;
  });
}

std::string index_error(const GraphNode& node, std::size_t axis, const Value& x, const Value& indices, std::int64_t offset) {
  const auto error = [&](std::string_view what, std::span<const std::int64_t> dims) {
    return cat("[", info(node.op).name, "] ", what, " of ", name(x.dtype), " ", to_string(dims), ", recorded at ",
               node.loc.file_name(), ":", node.loc.line());
  };
  if (node.attrs.empty()) {
    const std::string index = dispatch(indices.dtype, [&]<class T>() -> std::string {
      using Wide = std::conditional_t<std::is_same_v<T, std::uint64_t>, std::uint64_t, std::int64_t>;
      return cat(static_cast<Wide>(load<T>(indices, offset)));
    });
    return error(cat("index ", index, " is out of range for axis ", axis), x.dims);
  }
  const auto position = load<std::int64_t>(indices, offset);
  if (!is_bad_index(position)) return error("an index is out of range", node.attrs);  // the check came on later
  const BadIndex bad = bad_index(position);
  std::string_view far;
  if (bad.index == kFarIndex) far = " or more";
  if (bad.index == -kFarIndex) far = " or less";
  return error(cat("index ", bad.index, far, " is out of range for axis ", bad.axis), node.attrs);
}

Value gather(const GraphNode& node, const Value& x, const Value& indices, bool check_bounds) {
  Value out = oracle::new_value(node.dtype, node.dims);
  const std::size_t axis = node.attr64;
  Value rest = x;  // x where the coordinate along the axis is 0
  for (std::size_t i = 0; i < node.dims.size(); ++i)
    if (i == axis || x.dims[i] != node.dims[i]) rest.strides[i] = 0;
  rest.dims.assign(node.dims.begin(), node.dims.end());
  const std::int64_t bytes = size_of(node.dtype);
  Cursor from(rest), index(indices);
  for (std::int64_t i = 0, base = 0, at = 0; i < node.numel; ++i) {
    from.take(&base, 1);
    index.take(&at, 1);
    const std::int64_t position = resolve_index(indices.dtype, indices, at, x.dims[axis]);
    if (position < 0 && check_bounds) throw UserError(index_error(node, axis, x, indices, at));
    std::byte* const to = out.writable() + i * bytes;
    if (position < 0)
      std::memset(to, 0, static_cast<std::size_t>(bytes));
    else
      std::memcpy(to, x.data + (base + position * x.strides[axis]) * bytes, static_cast<std::size_t>(bytes));
  }
  return out;
}

/// An element that values are written to; sums and products are widened like a reduction's.
template <class S>
class Target {
 public:
  Target(Combine how, S first) : how_(how), value_(first), total_(widen(first)) {}
  void meet(S s) {
    const auto x = static_cast<ref::Compute<S>>(s), best = static_cast<ref::Compute<S>>(value_);
    switch (how_) {
      case Combine::Set: value_ = s; break;
      case Combine::Add: total_ += widen(s); break;
      case Combine::Multiply: total_ *= widen(s); break;
      case Combine::Max:
      case Combine::Min:
        if (best == best && (x != x || (how_ == Combine::Max ? x > best : x < best))) value_ = s;
        break;
    }
  }
  S value() const { return how_ == Combine::Add || how_ == Combine::Multiply ? narrow<S>(total_) : value_; }

 private:
  Combine how_;
  S value_;
  Sum<S> total_;
};

Value scatter(const GraphNode& node, const Value& x, const Value& indices, const Value& values, bool check_bounds) {
  const std::size_t axis = node.attr64 & 255;
  const auto how = static_cast<Combine>(node.attr64 >> 8);
  Value out = oracle::new_value(node.dtype, node.dims);
  Value rest = out;  // the result where the coordinate along the axis is 0
  rest.dims = values.dims;
  rest.strides[axis] = 0;
  dispatch(node.dtype, [&]<class S>() {
    std::vector<Target<S>> targets;
    Cursor cursor(x);
    for (std::int64_t i = 0, from = 0; i < node.numel; ++i) {
      cursor.take(&from, 1);
      targets.emplace_back(how, load<S>(x, from));
    }
    Cursor to(rest), index(indices), value(values);
    for (std::int64_t i = 0, n = values.numel(), base = 0, at = 0, from = 0; i < n; ++i) {
      to.take(&base, 1);
      index.take(&at, 1);
      value.take(&from, 1);
      const std::int64_t position = resolve_index(indices.dtype, indices, at, node.dims[axis]);
      if (position < 0 && check_bounds) throw UserError(index_error(node, axis, x, indices, at));
      if (position >= 0)
        targets[static_cast<std::size_t>(base + position * out.strides[axis])].meet(load<S>(values, from));
    }
    for (std::int64_t i = 0; i < node.numel; ++i) store(out, i, targets[static_cast<std::size_t>(i)].value());
  });
  return out;
}

template <class S>
void multiply_matrices(const Value& x, const Value& y, std::int64_t m, std::int64_t k, std::int64_t n, Value& out,
                       std::int64_t x_at, std::int64_t y_at, std::int64_t out_at) {
  std::vector<Sum<S>> row(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < m; ++i) {
    std::ranges::fill(row, Sum<S>(0));
    for (std::int64_t j = 0; j < k; ++j) {
      const Sum<S> a = widen(load<S>(x, x_at + i * k + j));
      for (std::int64_t c = 0; c < n; ++c) row[static_cast<std::size_t>(c)] += a * widen(load<S>(y, y_at + j * n + c));
    }
    for (std::int64_t c = 0; c < n; ++c) store(out, out_at + i * n + c, narrow<S>(row[static_cast<std::size_t>(c)]));
  }
}

Value matmul(const GraphNode& node, const Value& lhs, const Value& rhs) {
  const Value x = oracle::densified(lhs), y = oracle::densified(rhs);
  Value out = oracle::new_value(node.dtype, node.dims);
  const std::size_t rank = node.dims.size();
  const std::int64_t m = node.dims[rank - 2], n = node.dims[rank - 1], k = x.dims[rank - 1];
  const std::int64_t groups = m * n == 0 ? 0 : node.numel / (m * n);
  dispatch(node.dtype, [&]<class S>() {
    for (std::int64_t g = 0; g < groups; ++g) multiply_matrices<S>(x, y, m, k, n, out, g * m * k, g * k * n, g * m * n);
  });
  return out;
}

/// The order of sort: NaN after everything, -0 and +0 equal.
template <class S>
bool before(S a, S b) {
  using T = ref::Compute<S>;
  const T x = static_cast<T>(a), y = static_cast<T>(b);
  return x < y || (x == x && y != y);
}

Value sort(const GraphNode& node, const Value& x) {
  Value out = oracle::new_value(node.dtype, node.dims);
  const std::size_t axis = node.attr64 & 255;
  const bool descending = (node.attr64 >> 8) != 0;
  const std::int64_t n = x.dims[axis], kept = node.dims[axis];
  // The axis last, so that a row's elements follow one another.
  const auto turned = [&](Value v) {
    v.dims.push_back(v.dims[axis]);
    v.strides.push_back(v.strides[axis]);
    v.dims.erase(v.dims.begin() + static_cast<std::ptrdiff_t>(axis));
    v.strides.erase(v.strides.begin() + static_cast<std::ptrdiff_t>(axis));
    return v;
  };
  Cursor from(turned(x)), to(turned(out));
  std::vector<std::int64_t> at(static_cast<std::size_t>(n)), order(at.size());
  for (std::int64_t done = 0; done < node.numel; done += kept) {
    from.take(at.data(), n);
    std::iota(order.begin(), order.end(), std::int64_t{0});
    dispatch(x.dtype, [&]<class S>() {
      std::stable_sort(order.begin(), order.end(), [&](std::int64_t i, std::int64_t j) {
        const S a = load<S>(x, at[static_cast<std::size_t>(i)]), b = load<S>(x, at[static_cast<std::size_t>(j)]);
        if (before(a, b) || before(b, a)) return descending ? before(b, a) : before(a, b);
        if constexpr (is_float(dtype_of<S>))  // values: -0 below +0
          if (node.op == Op::sort && a == S(0.0f) && b == S(0.0f)) {
            const bool p = std::signbit(static_cast<float>(a)), q = std::signbit(static_cast<float>(b));
            return descending ? q && !p : p && !q;
          }
        return false;
      });
      for (std::int64_t i = 0, place = 0; i < kept; ++i) {
        to.take(&place, 1);
        const std::int64_t chosen = order[static_cast<std::size_t>(i)];
        if (node.op == Op::argsort) store(out, place, chosen);
        else store(out, place, load<S>(x, at[static_cast<std::size_t>(chosen)]));
      }
    });
  }
  return out;
}

Value search(const GraphNode& node, const Value& sorted, const Value& values) {
  Value out = oracle::new_value(node.dtype, node.dims);
  dispatch(sorted.dtype, [&]<class S>() {
    Cursor cursor(values);
    for (std::int64_t i = 0, at = 0; i < node.numel; ++i) {
      cursor.take(&at, 1);
      const S v = load<S>(values, at);
      std::int64_t place = 0;
      while (place < sorted.dims[0]) {
        const S s = load<S>(sorted, place * sorted.strides[0]);
        if (node.attr64 ? before(v, s) : !before(s, v)) break;
        ++place;
      }
      store(out, i, place);
    }
  });
  return out;
}

class Interpreter {
 public:
  Interpreter(const Graph& graph, std::span<const ArgData> args, std::span<const std::uint64_t> slots, bool check_bounds)
      : g_(graph), args_(args), slots_(slots), check_bounds_(check_bounds), loops_(find_loops(graph)), values_(graph.size()) {}

  const Value& value(NodeId id) const { return values_[id]; }

  void run() {
    std::vector<NodeId> last_use(g_.size(), 0);
    for (NodeId id = 0; id < g_.size(); ++id) {
      last_use[id] = id;
      for (int i = 0; i < g_[id].n_in; ++i) last_use[g_[id].in[i]] = id;
    }
    for (NodeId root : g_.roots) last_use[root] = g_.size();
    for (NodeId id = 0; id < g_.size(); ++id) {
      if (loops_.owner_of(id) == kNoNode) values_[id] = evaluate(id);
      for (int i = 0; i < g_[id].n_in && !loops_.any(); ++i)
        if (last_use[g_[id].in[i]] == id) values_[g_[id].in[i]] = {};
    }
  }

 private:
  /// Runs a loop; its states' values stay, and those of its stacks.
  void loop(const LoopParts& l) {
    for (NodeId state : l.states) values_[state] = oracle::densified(values_[g_[state].in[0]]);
    std::vector<Value>& stacks = stacks_[l.node];
    stacks.clear();
    for (NodeId yield : l.yields) {
      std::vector<std::int64_t> dims(g_[yield].dims.begin(), g_[yield].dims.end());
      dims.insert(dims.begin(), l.count);
      stacks.push_back(oracle::new_value(g_[yield].dtype, dims));
    }
    for (std::int64_t iteration = 0;; ++iteration) {
      for (NodeId id : l.body)
        if (loops_.owner[id] == l.node && g_[id].op != Op::loop_state) values_[id] = evaluate(id);
      const Value goes_on = values_[l.condition];
      if (!any_true(goes_on)) return;
      for (std::size_t y = 0; y < l.yields.size(); ++y) {
        const Value v = oracle::densified(values_[l.yields[y]]);
        const auto bytes = static_cast<std::size_t>(v.numel() * size_of(v.dtype));
        if (bytes != 0) std::memcpy(stacks[y].writable() + static_cast<std::size_t>(iteration) * bytes, v.data, bytes);
      }
      std::vector<Value> next;
      for (std::size_t i = 0; i < l.states.size(); ++i)
        next.push_back(chosen(oracle::broadcast(goes_on, g_[l.states[i]].dims), values_[l.nexts[i]], values_[l.states[i]]));
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
      std::memcpy(out.writable() + i * bytes, takes ? a.data + from * bytes : b.data + other * bytes, static_cast<std::size_t>(bytes));
    }
    return out;
  }

  Value evaluate(NodeId id) {
    const GraphNode& node = g_[id];
    const auto in = [&](int i) -> const Value& { return values_[node.in[i]]; };
    switch (info(node.op).kind) {
      case OpKind::Leaf:
        return leaf(node, g_.args[static_cast<std::size_t>(node.arg)], args_[static_cast<std::size_t>(node.arg)]);
      case OpKind::Scalar:
        return scalar(node, node.op == Op::constant ? node.attr64 : slots_[static_cast<std::size_t>(node.arg)]);
      case OpKind::Iota: return iota(node);
      case OpKind::Cast: return cast(node, oracle::broadcast(in(0), node.dims));
      case OpKind::Reduce: return oracle::reduce(node, in(0));
      case OpKind::Scan: return oracle::scan(node, in(0));
      case OpKind::Gather: return gather(node, in(0), oracle::broadcast(in(1), node.dims), check_bounds_);
      case OpKind::Contraction: return matmul(node, in(0), in(1));
      case OpKind::Library:
        if (node.op == Op::scatter) return scatter(node, in(0), oracle::broadcast(in(1), in(2).dims), in(2), check_bounds_);
        return node.op == Op::searchsorted ? search(node, in(0), in(1)) : sort(node, in(0));
      case OpKind::LoopState:
      case OpKind::LoopNext: return {};
      case OpKind::Loop: loop(loops_.of(id)); return {};
      case OpKind::LoopResult: return values_[loops_.of_result(g_, id).states[node.attr64]];
      case OpKind::LoopStack: return stacks_.at(node.in[0])[node.attr64];
      case OpKind::Elementwise: {
        Value operands[3];
        for (int i = 0; i < node.n_in; ++i) operands[i] = oracle::broadcast(in(i), node.dims);
        return oracle::elementwise(node, operands);
      }
      case OpKind::View: break;
    }
    switch (node.op) {
      case Op::reshape: return reshape(node, in(0));
      case Op::permute: return permute(node, in(0));
      case Op::broadcast: return oracle::broadcast(in(0), node.dims);
      case Op::slice: return slice(node, in(0));
      case Op::slice_at: return slice_at(node, in(0), in(1));
      case Op::update_at: return update_at(node, in(0), in(1), in(2));
      default: KILN_CHECK_THAT(node.op == Op::pad, info(node.op).name); return pad(node, in(0), in(1));
    }
  }

  const Graph& g_;
  std::span<const ArgData> args_;
  std::span<const std::uint64_t> slots_;
  bool check_bounds_;
  Loops loops_;
  std::vector<Value> values_;
  std::map<NodeId, std::vector<Value>> stacks_;  // of each loop: one value of each of its yields an iteration
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
